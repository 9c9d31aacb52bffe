//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/integration/sim"
)

// simBlind has the mutants of engine and adapters that the simulator does not catch, by name, each with the reason.
var simBlind = map[string]string{
	"a message cancelled by the stop counts as an attempt":             "too rare: the last run but one has to outlast a drain",
	"messages are given to one worker though others are idle":          "it costs time and breaks no promise",
	"a finished message waits for the end of its worker's micro-batch": "an ack is late by one hand-off, as it may be",
	"what makes room stops all others":                                 "it costs throughput: all becomes settled all the same",
	"the rest of a batch is a message":                                 "it needs a worker without a processor",
	"what is received beside a lapse starts before it":                 "what is received is in its lane in the same instant",
	"a complete batch lingers on in memory":                            "it shows in memory alone",

	"a worker acks before others have acked what stands before it": "one seed in thousands: both acks have to begin in one instant",
	"a worker that was replaced goes on with its run":              "too rare: a deaf handler in a run, and a hanging one behind it",

	"what is left to Receive, which can do nothing, nobody does": "a hold would have to fall between an arrival and the next look",

	"an extension counts however late its answer is": "one run of many shows it, even of the schedule that is kept",

	"a reset position is not committed":          "too rare: a trim would have to come before the first commit",
	"a position beyond the end waits for ever":   "kfake has one log for all its brokers: none is cut off",
	"the end of a compacted batch is not passed": "no topic is compacted",
	"checksums are not checked":                  "no byte is changed on its way",
	"a pause keeps what was prefetched":          "it shows in memory alone",
	"memory of a batch is used again as it is":   "outputs are a few bytes, and memory is used again from 225 KiB on",
	"the budget of bytes forgets the prefetch":   "what is out is counted, and not what is prefetched",
	"what a late commit set back stays so":       "a commit has to come later than the one after it; a cut and a delay hold up both",

	"the last look is believed against what others have committed since": "a topic made anew between two looks: 1 seed in 700",
	"a topic that was made anew says that its transaction was aborted":   "1 seed in thousands; a kept schedule shows it",
	"what is of a deleted topic goes along in transactions":              "topics that are deleted are made anew at once",
	"a member rests beyond its session":                                  "1 seed in thousands; a kept schedule, 1 run of 5",
	"what was lost before a transaction begins is written by it":         "one seed in some thousands",
	"where to begin is read beside a transaction":                        "the same; a kept schedule shows it in one run of ten",
	"one epoch for all partitions":                                       "a late commit of a partition that came back by then",
	"what is not ours is committed by the newest epoch":                  "the same",
	"heartbeats only as often as the broker asks":                        "it costs time and breaks no promise",
	"a commit of a stale epoch is made again by the newest":              "the fake takes what Kafka refuses",
	"what we own is not told again after a lost answer":                  "who is fenced for it joins again: it costs time",
	"what drained of an old topic is not begun anew":                     "all sources begin at the earliest offset anyway",

	"a Receive that fails ends the claims":   "no Receive fails",
	"a budget of nothing waits":              "no configuration is wrong",
	"a refused configuration is tried again": "the same",
	"bytes used up to the last one":          "messages have sizes of their own: hardly ever is a budget used up to the byte",
	"pause keeps the prefetch":               "it shows in memory alone",
	"prefetch beyond the budget":             "the same; what is out is counted, and not what is prefetched",

	"few finished messages remembered":            "no process has so many in a lease",
	"end then fence":                              "an ack has to come in the millisecond between the two",
	"a commit refused by a bounce not sent again": "what is finished later is committed with it: none of 1,500 seeds",
	"given back and gone in silence":              "a message has to be dropped between two runs: none of 700 seeds",
	"leases of the prefetch not extended":         "nothing is prefetched for a lease: none of 740 seeds",
	"leases of unsent settles not extended":       "no settle is held up for a lease without a trouble that excuses it",
	"prefetch handed out after its lease":         "the same: who was silent for a lease may do things twice",
	"delay of a give-back ignored":                "no delay is held against a broker: a lease that runs out may come before it",
	"late ack not sent":                           "it spares work, and breaks no promise",
	"order not kept at stop and pause":            "what processes share has no order between them",
	"give-backs sent from the last one on":        "the same",
	"receive goes on after a kill":                "what a killed process does counts for nobody",
	"gap from nowhere":                            "gaps are counted, and nobody looks where they are",
	"lag of the wrong group":                      "lags are looked at when all is settled",
	"unknown lag is zero":                         "the same",
	"settles not told as operations":              "nobody looks at operations",
	"second close does not wait":                  "the engine closes once",
	"second settle accepted":                      "the engine settles once, or the spy says so",
	"settled goes before lost":                    "the same",
	"settles of another source":                   "it settles with the source that it has a message from",

	"a publish goes on when its context has ended": "2 seeds of 1,000; a kept schedule shows it in one run of two",

	"short fetches never come together":                              "it costs fetches, and breaks no promise",
	"who waits for a time is not looked at":                          "a look at topics wakes it within a second",
	"a member that was silent for a session goes on with heartbeats": "the fake has counted it out by then: none of 360 seeds",
	"a topic made anew is begun before the group assigns it":         "one seed in some thousands",

	"the floor passes what is out":           "nobody asks for floors",
	"a log made anew has the old one's name": "the same",

	"a join waits half a session":                      "no exchange takes so long that it shows, and it would cost time",
	"who has not heard that it joined says no goodbye": "it costs a session, and breaks no promise",

	"one receipt for many acks":                          "a connection to one server loses no ack before one that arrives",
	"acks without a receipt are not sent again":          "a server that stays loses no ack; another connection sends all again",
	"old acks go to whichever consumer is there":         "a late ack may settle what is new there, too (Kind.Confuses)",
	"finished messages are remembered by sequence alone": "too rare: a late ack may settle what is new there, too (Kind.Confuses)",
	"gaps are not reported":                              "of what processes share nobody knows which of them can tell a gap",
	"what a lame server says is a receipt":               "a server without a socket has no lame duck mode",

	"what a failed run of a batch emitted goes with the others' acks":   "batch handlers emit for each message by itself",
	"outputs too large accepted":                                        "outputs are a few bytes",
	"the next transaction has the name of one that was asked for twice": "too rare: an end comes behind the next begin",
	"dedup takes for handled what is not published yet":                 "too rare: what is emitted is hardly ever what fails",

	"a share is not followed":                       "shares are looked at, and not what comes of them",
	"every process has the whole of a shared limit": "the same",

	"the committed offset alone tells of a transaction": "too rare: a topic made anew, a silent member",
}

// simMutants are mistakes about outputs, dead letters and batches that the simulator alone is asked for.
var simMutants = []mutant{
	{"what a failed run emitted goes with the next ack", "consumer/emissions.go",
		"		outs := e.take(i)\n		if last", "		outs := append(e.take(i-1), e.take(i)...)\n		if last", "", ""},
	{"a batch does not mind its bytes", "consumer/cutter.go",
		"bytes >= b.cfg.Bytes", "bytes >= 2*b.cfg.Bytes", "", ""},
	{"a letter's handler is not asked for", "consumer/letters.go",
		"target(f.Class, handler)", "target(f.Class, handler[:0])", "", ""},
	{"a letter whose topic is missing counts as there", "consumer/letters.go",
		"	d.published(own, errs, start)\n",
		"	for i := range errs {\n		if errors.Is(errs[i], broker.ErrNoTopic) {\n			errs[i] = nil\n		}\n	}\n" +
			"	d.published(own, errs, start)\n", "", ""},
	{"one call more than the limit may run", "handlers/middleware/concurrency.go",
		"	if l.running >= l.most() {\n		return false", "	if l.running > l.most() {\n		return false", "", ""},
	{"a rate that is changed begins with all of its burst", "handlers/middleware/ratelimit.go",
		"	next.AllowN(now, burst-min(max(0, int(whole)), burst))\n", "	_ = whole\n", "", ""},
	{"a circuit that is open lets calls through", "handlers/middleware/circuit.go",
		"	case x.state == stateOpen:\n		return", "	case x.state == stateOpen && x.trying > 0:\n		return", "", ""},
	{"a probe that tells nothing keeps its place", "handlers/middleware/circuit.go",
		"	x.trying--\n	switch {\n	case r == tellsNothing:", "	switch {\n	case r == tellsNothing:", "", ""},
	{"dedup takes for handled what is not published yet", "handlers/middleware/dedup.go",
		"	case !withAck:\n		return h, false", "	case !withAck:\n		return h, true", "", ""},
	{"dedup takes for handled what is not stored yet", "handlers/middleware/dedup.go",
		"	h.emitted = true\n", "", "", ""},
	{"what is given back is of the share until the next heartbeat", "broker/membroker/release.go",
		"		p.m.release(e.h.cur, e.h.term)\n		r.figures.learnShare(p.m)\n", "		p.m.release(e.h.cur, e.h.term)\n", "", ""},
	{"who was pinned while it stopped keeps its share", "broker/natsbroker/pin.go",
		"p.lost == nil && !p.freed && !p.doubtful", "p.lost == nil && !p.doubtful", "", ""},
	{"a publish that failed is confirmed", "broker/membroker/publisher.go",
		"	if failed {\n", "	if failed && len(errs) == 0 {\n", "", ""},
	{"a transaction is not fenced by who we are in the group", "broker/kafkabroker/txnrequests.go",
		"	me.write(w)\n", "	_ = me\n	memberID{generation: -1}.write(w)\n", "", ""},
}

// catchWithin is how long the simulator may look for a mutant, on all cores.
var catchWithin = lengths(20*time.Second, time.Minute)

// TestMutantsInSim proves that the simulator catches what is planted in the engine and the adapters, and prints how long that
// took. Each is a build of its own: in full only.
func TestMutantsInSim(t *testing.T) {
	if !inFull() && os.Getenv("LONGSHORE_SIM_MUTANTS") == "" {
		t.Skip("in short: LONGSHORE_SIM_MUTANTS=1 or make chaos runs it")
	}
	sound := simBinary(t, nil)
	for name, edits := range simPlanted() {
		kinds := simKinds(t, edits[0].file)
		if len(kinds) == 0 {
			continue
		}
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			if why := simBlind[name]; why != "" {
				t.Skip(why)
			}
			c := catcher{kinds: kinds, mutant: simBinary(t, edits), sound: &sim.Runner{Binary: sound}}
			defer c.sound.Close()
			fmt.Printf("mutant in sim: %-60s %s\n", name, c.catch())
			if c.finding == "" {
				t.Error("the simulator does not see it: say why in simBlind, or let it see it")
			}
		})
	}
}

// TestSimBlindIsKnown: each reason is that of a mutant.
func TestSimBlindIsKnown(t *testing.T) {
	planted := simPlanted()
	for name := range simBlind {
		if planted[name] == nil {
			t.Errorf("there is no mutant %q", name)
		}
	}
}

// simPlanted are all mutants, by name.
func simPlanted() map[string][]edit {
	all := map[string][]edit{}
	for _, ms := range [][]mutant{mutants, kafkaMutants, simMutants} {
		for _, m := range ms {
			all[m.name] = []edit{{m.file, m.old, m.new}}
		}
	}
	for _, m := range suiteMutants {
		all[m.name] = m.edits
	}
	return all
}

const inMemory = "membroker membroker-leased"

// simKinds are the worlds in which a mistake in that file can show.
func simKinds(t *testing.T, file string) (kinds []sim.Kind) {
	t.Helper()
	for dir, worlds := range map[string]string{
		"consumer/": inMemory, "handlers/": inMemory, "broker/membroker/": inMemory, "broker/kit/": inMemory,
		"broker/kafkabroker/": "kafka", "broker/natsbroker/": "nats",
	} {
		for name := range strings.FieldsSeq(worlds) {
			if !strings.HasPrefix(file, dir) {
				continue
			}
			k, err := sim.KindOf(name)
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// simBinary builds the simulator's test binary with the edits.
func simBinary(t *testing.T, edits []edit) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sim.test")
	cmd := exec.Command("go", "test", "-c", "-o", path, "-overlay="+overlay(t, edits), "./integration/sim")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the simulator: %v\n%s", err, out)
	}
	return path
}

// A catcher looks for a mutant with the seeds from 1.
type catcher struct {
	kinds  []sim.Kind
	mutant string
	sound  *sim.Runner

	finding string
	runs    int
	own     map[string]bool // findings that the product has without the mutant, too
}

// catch returns what was found, after how long.
func (c *catcher) catch() string {
	c.own = map[string]bool{}
	began := time.Now()
	var at sim.Schedule
	var took time.Duration
	c.catchKept()
	if c.finding != "" {
		return fmt.Sprintf("caught after %.1f s, by a schedule that is kept: %.100s", time.Since(began).Seconds(), c.finding)
	}
	sim.Exploration{
		Binary: c.mutant, Kinds: c.kinds, From: 1, For: catchWithin, Children: runtime.NumCPU(),
		Ran: func(s sim.Schedule, res sim.Result) bool {
			if c.finding != "" {
				return false
			}
			c.runs++
			for _, f := range res.Findings {
				if c.isNew(s, f) {
					c.finding, at, took = f, s, time.Since(began)
					return false
				}
			}
			return true
		},
	}.Explore()
	if c.finding == "" {
		return fmt.Sprintf("survived %d schedules", c.runs)
	}
	return fmt.Sprintf("caught after %.1f s, %d schedules, in world %s by seed %d: %.100s",
		took.Seconds(), c.runs, at.World, at.Seed, c.finding)
}

// catchKept tries the schedules that are kept.
func (c *catcher) catchKept() {
	r := &sim.Runner{Binary: c.mutant}
	defer r.Close()
	files, _ := filepath.Glob("sim/testdata/kept/*.json")
	for _, file := range files {
		var s sim.Schedule
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil || !slices.ContainsFunc(c.kinds, func(k sim.Kind) bool { return k.Name == s.World }) {
			continue
		}
		c.runs++
		for _, f := range r.Try(s, false).Findings {
			if c.isNew(s, f) {
				c.finding = f
				return
			}
		}
	}
}

// isNew says whether the product has no such finding by itself.
func (c *catcher) isNew(s sim.Schedule, finding string) bool {
	like := sim.Likeness(finding)
	if c.own[like] {
		return false
	}
	for range 10 {
		for _, f := range c.sound.Try(s, false).Findings {
			c.own[sim.Likeness(f)] = true
		}
	}
	return !c.own[like]
}
