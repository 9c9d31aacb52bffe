//go:build unix

package integration

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/ledger"
)

// A killRow is one run of the kill harness: a numbered load, consumers in processes of their own, and something that is killed.
type killRow struct {
	Fault      string         `json:"fault,omitempty"` // its id in faults.md
	Row        string         `json:"row"`
	Broker     string         `json:"broker"`
	Discipline discipline     `json:"discipline"`
	Workers    int            `json:"workers"` // in each consumer; killWorkers where it is 0
	Order      consumer.Order `json:"order,omitempty"`
	Keys       int64          `json:"keys,omitempty"` // that the load has; each message one of them
	Rate       int            `json:"rate"`           // messages a second
	Kills      int            `json:"kills"`
	SlowOneIn  int            `json:"slow_one_in"`
	Seed       uint64         `json:"seed"` // of the moments of the kills and of which handlers are slow; LONGSHORE_SEED sets it
	Messages   int64          `json:"-"`    // at least so many, where that takes longer than the kills
	Calm       bool           `json:"-"`    // see field.calm
	Account    ledger.Account `json:"account"`
	Kept       *ledger.Order  `json:"kept,omitempty"` // how the order was kept, where there is one to keep
	// PerKill is duplicates per kill; Slowest the longest exit after SIGTERM.
	PerKill float64 `json:"duplicates_per_kill"`
	Slowest float64 `json:"slowest_exit_seconds,omitempty"`
}

const (
	killWorkers = 16
	killRate    = 1000
	killDrain   = 10 * time.Second
)

// TestKillConsumers: SIGKILL of one of two consumers, again and again.
func TestKillConsumers(t *testing.T) {
	kills := lengths(4, 20)
	onEach(t, func(t *testing.T, k kind) {
		for _, d := range k.products {
			t.Run(string(d), func(t *testing.T) {
				if d == wholeProgram { // SIGTERM below has the program
					variant(t)
				}
				sideBySide(t)
				for _, seed := range seeds(lengths(1, k.seeds)) {
					a := runKills(t, k.start(t), killRow{Fault: k.sigkill, Row: "sigkill", Discipline: d, Kills: kills,
						Messages: lengths[int64](0, 30_000), Seed: seed}, (*field).killConsumer)
					// Few kills say little of the mean. Each of the two has half of the load.
					a.mustSurvive(t, kills, lengths(k.perKill(killRate/2), killWorkers))
					verdict(t, k.sigkill, fmt.Sprintf("SIGKILL of one of two consumers (%s), %d times, seed %d", d, kills, seed),
						fmt.Sprintf("%.1f duplicates per kill; %v", float64(a.Duplicates)/float64(kills), a))
				}
			})
		}
		for _, d := range k.byHand {
			t.Run(string(d), func(t *testing.T) {
				variant(t)
				sideBySide(t)
				a := runKills(t, k.start(t), killRow{Row: "sigkill", Discipline: d, Kills: kills}, (*field).killConsumer)
				a.mustSurvive(t, kills, killWorkers)
			})
		}
	})
}

// seeds are those of n runs: new ones, or all the one that LONGSHORE_SEED says.
func seeds(n int) (all []uint64) {
	for range n {
		all = append(all, newSeed())
	}
	return all
}

func newSeed() uint64 {
	if set, err := strconv.ParseUint(os.Getenv("LONGSHORE_SEED"), 10, 64); err == nil {
		return set
	}
	return uint64(rand.Uint32())
}

// TestTerminateConsumers: a rolling deploy. Nothing is lost, nothing is done twice, each exit is clean and in time.
func TestTerminateConsumers(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		for _, d := range k.products {
			t.Run(string(d), func(t *testing.T) {
				if d == longshoreConsumer { // SIGKILL above has the library
					variant(t)
				}
				sideBySide(t)
				a := runKills(t, k.start(t), killRow{Fault: "f04", Row: "sigterm", Discipline: d, Kills: lengths(4, 12), Calm: true},
					(*field).terminateConsumer)
				a.mustKeepAll(t)
				a.noDuplicates(t)
				verdict(t, "f04", fmt.Sprintf("SIGTERM of one of two consumers (%s), again and again", d), a.String())
			})
		}
	})
}

// TestKillServer: SIGKILL of the broker, which comes back on its data. What it had not written or was not told by then it hands
// out again: so duplicates are printed and not bounded here.
func TestKillServer(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		a := runKills(t, k.own(t), killRow{Fault: k.serverKill, Row: "server_sigkill", Discipline: longshoreConsumer,
			Kills: lengths(2, 6)},
			(*field).killServer)
		a.mustKeepAll(t)
		verdict(t, k.serverKill, "SIGKILL of the broker, again and again", a.String())
	})
}

// TestKillBoth: SIGKILL of the broker and of a consumer, in turns.
func TestKillBoth(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		a := runKills(t, k.own(t), killRow{Fault: "f11", Row: "both_sigkill", Discipline: longshoreConsumer, Kills: lengths(4, 12)},
			func(f *field, t *testing.T, i int) {
				if i%2 == 0 {
					f.killServer(t, i)
				} else {
					f.killConsumer(t, i/2)
				}
			})
		a.mustKeepAll(t)
		verdict(t, "f11", "SIGKILL of the broker and of a consumer, in turns", a.String())
	})
}

// TestHarnessSeesLoss: a consumer that acks before it handles, or commits past what is unfinished, loses messages when it is
// killed. A harness that reports nothing here proves nothing above. In short there are few kills, and so more slow handlers,
// under which commits pass.
func TestHarnessSeesLoss(t *testing.T) {
	variant(t)
	onEach(t, func(t *testing.T, k kind) {
		kills := lengths(8, 20)
		a := runKills(t, k.start(t), killRow{Row: "sigkill", Discipline: k.naive, Kills: kills, SlowOneIn: lengths(20, 100),
			Messages: lengths[int64](0, 30_000)}, func(f *field, t *testing.T, i int) {
			if i < kills-1 {
				f.killConsumer(t, i)
			} else { // on a slow machine, none of the kills above may have met a slow handler
				f.killWhileLosing(t)
			}
		})
		if a.Lost == 0 {
			t.Errorf("%s lost nothing over its kills: this harness cannot see loss", k.naive)
		}
		if a.Unexpected != 0 {
			t.Errorf("%d messages handled that nobody sent", a.Unexpected)
		}
		verdict(t, "loss", fmt.Sprintf("SIGKILL of one of two consumers that are not ours (%s), %d times", k.naive, kills), a.String())
	})
}

// An account is what became of a run's messages, and the broker on which it was.
type account struct {
	ledger.Account
	broker string
	kept   *ledger.Order // nil: there was no order to keep
}

func (a account) mustKeepAll(t *testing.T) {
	t.Helper()
	if a.Acked == 0 {
		t.Error("nothing was published: the run proves nothing")
	}
	if a.Lost != 0 || a.Unseen != 0 || a.Unexpected != 0 {
		t.Errorf("lost %d (%v), unseen %d, unexpected %d of %d", a.Lost, a.LostIDs, a.Unseen, a.Unexpected, a.Acked)
	}
}

// mustSurvive: after SIGKILLs nothing is lost, and little is done twice.
func (a account) mustSurvive(t *testing.T, kills, each int) {
	t.Helper()
	a.mustKeepAll(t)
	if bound := kills * each; a.Duplicates > bound {
		t.Errorf("%d duplicates after %d SIGKILLs, more than %d each", a.Duplicates, kills, each)
	}
}

// A field is a running set-up: system, consumers, load.
type field struct {
	row       killRow
	rand      *rand.Rand // of runKills
	on        system
	config    consumerConfig
	start     func(*testing.T) *process // one more consumer
	consumers []*process
	load      *load
	// spread gives the load keys, and clock stamps the runs of handlers; nil: neither.
	spread *spread
	clock  *ledger.Clock
	// overtakes: the network may hand a request over after one that was sent later, on another connection. Kafka takes a commit that
	// comes so, and none of its members can help that.
	overtakes bool
}

// runKills runs a row and returns its account.
func runKills(t *testing.T, on system, row killRow, kill func(*field, *testing.T, int)) account {
	t.Helper()
	return newField(t, on, row.Discipline).runKills(t, row, kill)
}

func (f *field) runKills(t *testing.T, row killRow, kill func(*field, *testing.T, int)) account {
	t.Helper()
	row.Broker, row.Workers, row.Rate = f.on.broker(), cmp.Or(row.Workers, killWorkers), killRate
	f.config.Workers = row.Workers
	row.Seed, row.SlowOneIn = cmp.Or(row.Seed, newSeed()), cmp.Or(row.SlowOneIn, f.config.SlowOneIn)
	f.config.Seed, f.config.SlowOneIn = row.Seed, row.SlowOneIn
	f.rand = rand.New(rand.NewPCG(row.Seed, 1))
	f.row = row
	if row.Keys > 0 {
		f.withKeys(t, row.Keys, row.Order)
		f.config.FailRuns, f.config.FailOneIn = 2, 100
	}
	if row.Calm {
		f.calm(t)
	}
	f.startConsumers(t, 2)
	f.load = f.startLoad(t, killRate, 0)
	for i := range row.Kills {
		if row.Keys > 0 { // all over the load
			due := row.Messages * int64(i+1) / int64(row.Kills+1)
			eventually(t, fmt.Sprintf("%d messages are stored", due), func() bool { return f.load.stored() >= due })
		}
		// A random moment, with all at work.
		f.atWork(t)
		time.Sleep(600*time.Millisecond + f.upTo(600*time.Millisecond))
		kill(f, t, i)
	}
	eventually(t, "the load is long enough", func() bool { return f.load.stored() >= row.Messages })
	f.load.stop()
	a := f.settle(t)
	for _, p := range f.consumers {
		p.await(t, "is connected", p.up) // the others may have done all before one that was just started hears a signal
		if code, _ := p.terminate(t); code != 0 {
			t.Errorf("a consumer exits with %d after SIGTERM", code)
		}
	}
	if f.isProduct() {
		f.audit(t)
		f.on.toolAgrees(t)
	}
	f.row.Account, f.row.Kept = a.Account, a.kept
	f.row.PerKill = float64(a.Duplicates) / float64(row.Kills)
	report(f.row)
	return a
}

// newField has consumers of a discipline ready to start.
func newField(t *testing.T, on system, d discipline) *field {
	t.Helper()
	f := &field{on: on}
	f.config = consumerConfig{Discipline: d, Ledger: filepath.Join(t.TempDir(), "ledger"),
		Workers: killWorkers, SlowOneIn: 100, Seed: newSeed(), Drain: killDrain, Ping: time.Second, Heartbeat: time.Second}
	on.configure(&f.config)
	f.start = func(t *testing.T) *process { return startProcess(t, f.config) }
	if d == wholeProgram {
		var all *programs // made with the configuration of the first start
		f.start = func(t *testing.T) *process {
			if all == nil {
				all = newPrograms(t, f.config)
			}
			return all.start(t)
		}
	}
	return f
}

// calm gives the members of a Kafka group a session that outlasts what a busy machine does to heartbeats. It is for rows in which
// nobody dies: who loses a session does again what was not committed.
func (f *field) calm(t *testing.T) {
	if _, ok := f.on.(*kafkaSystem); ok {
		f.setLease(t, time.Minute)
		f.config.Heartbeat = 200 * time.Millisecond
	}
}

// setLease sets for how long the broker waits for a consumer that says nothing.
func (f *field) setLease(t *testing.T, d time.Duration) {
	t.Helper()
	f.config.Lease = d
	if s, ok := f.on.(*kafkaSystem); ok {
		s.setSession(t, d)
	}
}

// isProduct says whether the consumers are what we promise something about.
func (f *field) isProduct() bool {
	return f.config.Discipline == longshoreConsumer || f.config.Discipline == wholeProgram
}

func (f *field) startConsumers(t *testing.T, n int) {
	t.Helper()
	for range n {
		f.consumers = append(f.consumers, f.start(t))
	}
	for _, p := range f.consumers {
		p.await(t, "is connected", p.up)
	}
}

func (f *field) killConsumer(t *testing.T, i int) {
	t.Helper()
	f.consumers[i%len(f.consumers)].kill()
	f.consumers[i%len(f.consumers)] = f.start(t)
}

// killWhileLosing waits until the broker calls something settled that no handler has finished, and kills all consumers then. They
// stand still while it looks, so that no handler ends between the look and the kill.
func (f *field) killWhileLosing(t *testing.T) {
	t.Helper()
	all := func(do func(*process)) {
		for _, p := range f.consumers {
			do(p)
		}
	}
	eventually(t, "something is settled that is not handled", func() bool {
		all(func(p *process) { p.signal(t, syscall.SIGSTOP) })
		b := f.on.progress(t)
		acked, sent := f.load.confirmed()
		if ledger.Settle(acked, sent, f.entries(t), b).Lost > 0 {
			return true
		}
		all(func(p *process) { p.signal(t, syscall.SIGCONT) })
		time.Sleep(100 * time.Millisecond) // they work
		return false
	})
	for i := range f.consumers {
		f.killConsumer(t, i)
	}
}

func (f *field) terminateConsumer(t *testing.T, i int) {
	t.Helper()
	code, took := f.consumers[i%len(f.consumers)].terminate(t)
	if code != 0 || took > killDrain+5*time.Second {
		t.Errorf("SIGTERM %d: exit code %d after %v; want 0 within %v", i+1, code, took, killDrain)
	}
	f.row.Slowest = max(f.row.Slowest, took.Seconds())
	f.consumers[i%len(f.consumers)] = f.start(t)
}

func (f *field) killServer(t *testing.T, _ int) {
	t.Helper()
	f.on.kill()
	time.Sleep(f.upTo(600 * time.Millisecond))
	if err := f.on.restart(); err != nil {
		t.Fatal(err)
	}
	before := len(f.entries(t))
	eventually(t, "a second of messages is handled after the server's restart",
		func() bool { return len(f.entries(t)) > before+killRate })
}

// upTo is a random time that the row's seed chooses.
func (f *field) upTo(d time.Duration) time.Duration { return time.Duration(f.rand.Int64N(int64(d))) }

func (f *field) entries(t *testing.T) []ledger.Entry {
	t.Helper()
	es, err := ledger.Read(f.config.Ledger)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return es
}

// settle waits until every confirmed message is in the ledger or among the dead letters, and settled at the broker, or until
// nothing moves any more, and makes the account. A message that comes back is handed out before the broker calls all settled, so
// no duplicate is missed.
func (f *field) settle(t *testing.T) account {
	t.Helper()
	acked, sent := f.load.confirmed()
	quiet := lengths(10*time.Second, 20*time.Second) + 2*f.config.Busy
	if f.config.Letters != "" { // one that cannot be published is tried again within 12 s, and holds up its key till then
		quiet += 15 * time.Second
	}
	last, since := -1, time.Now()
	for time.Since(since) < quiet {
		b := f.on.progress(t)
		es := f.entries(t)
		if b.idle {
			a := ledger.Settle(acked, sent, f.withLetters(t, es), b)
			if a.Lost == 0 && a.Unseen == 0 {
				return account{a, f.on.broker(), f.kept()}
			}
			if !f.isProduct() {
				quiet = 3 * time.Second // nothing will come again; what still runs needs less
			}
		}
		if len(es) != last {
			last, since = len(es), time.Now()
		}
		time.Sleep(50 * time.Millisecond)
	}
	b := f.on.progress(t)
	t.Logf("nothing moved for %v; the broker says %+v", quiet, b)
	return account{ledger.Settle(acked, sent, f.withLetters(t, f.entries(t)), b), f.on.broker(), f.kept()}
}

// withLetters adds the dead letters, where there may be any.
func (f *field) withLetters(t *testing.T, es []ledger.Entry) []ledger.Entry {
	if f.config.Letters != "" {
		for _, l := range f.letters(t) {
			es = append(es, l.Entry)
		}
	}
	return es
}
