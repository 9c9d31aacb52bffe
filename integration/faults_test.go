//go:build unix

package integration

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/integration/natsd"
)

// A fault is a row of the fault table: what is done to a running set-up. faults.md lists all rows and where each is proved. Common to all:
// nothing lost, nothing unseen, nothing unexpected, nothing left unsettled at the end, and every consumer that was not killed exits with 0.
type fault struct {
	id   string
	what string
	run  func(*testing.T) string // returns what is worth printing
}

var faults = []fault{
	{"f03", "SIGKILL of one of three members", killOneOfThree},
	{"f05", "second SIGTERM while draining", terminateTwice},
	{"f06", "SIGTERM while a handler hangs", terminateHanging},
	{"f08", "SIGSTOP for longer than AckWait, then SIGCONT", freezeConsumer},
	{"f12", "broker down, then back", brokerDown},
	{"f13", "broker absent at start", brokerAbsent},
	{"f14", "connection cut, by RST", cut},
	{"f15", "a storm of resets", resetStorm},
	{"f16", "blackhole from broker to client", holdToClient},
	{"f17", "blackhole from client to broker: acks do not arrive", holdToServer},
	{"f19", "half-open connection that heals", halfOpen},
	{"f21", "4 KB/s in slices of 7 bytes", slowNetwork},
	{"f32", "messages purged that nobody handled", purge},
	{"f33", "durable or stream deleted and made anew", recreate},
	{"f34", "the broker forgets acks, or the whole durable", forgottenAcks},
	{"f35", "more failures than any MaxDeliver", manyFailures},
	{"f36", "handler longer than AckWait, and 40 queued behind it", longHandler},
}

// TestFaults prints one line for each: `fNN pass|fail what: figures`.
func TestFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(f.id, func(t *testing.T) {
			figures := "stopped before its figures"
			defer func() { verdict(t, f.id, f.what, figures) }()
			figures = f.run(t)
		})
	}
}

// verdict prints the line of a fault.
func verdict(t *testing.T, id, what, figures string) {
	word := "pass"
	if t.Failed() {
		word = "fail"
	}
	if !t.Skipped() {
		fmt.Printf("%s %s %s: %s\n", id, word, what, figures)
	}
}

const faultRate = 300

// finish ends a row: it stops the load, waits until all is settled, checks what is common, and ends the consumers.
func (f *field) finish(t *testing.T) account {
	t.Helper()
	f.load.stop()
	a := f.settle(t)
	a.mustKeepAll(t)
	if b, _ := f.broker(t); b.Floor != b.Delivered || b.Unsettled != 0 {
		t.Errorf("at the end the broker says %+v: something was delivered and never settled", b)
	}
	for _, p := range f.consumers {
		if p.ended() {
			continue
		}
		if code, _ := p.terminate(t); code != 0 {
			t.Errorf("a consumer exits with %d after SIGTERM", code)
		}
	}
	return a
}

func (a account) noDuplicates(t *testing.T) {
	t.Helper()
	if a.Duplicates != 0 {
		t.Errorf("%d messages were handled twice, want none", a.Duplicates)
	}
}

func (a account) String() string {
	return fmt.Sprintf("acked %d, lost %d, duplicates %d", a.Acked, a.Lost, a.Duplicates)
}

// moves waits until n more messages are handled.
func (f *field) moves(t *testing.T, n int) time.Duration {
	t.Helper()
	began, before := time.Now(), len(f.entries(t))
	eventually(t, fmt.Sprintf("%d more messages are handled", n), func() bool { return len(f.entries(t)) >= before+n })
	return time.Since(began)
}

func killOneOfThree(t *testing.T) string {
	f := newField(t, longshoreConsumer)
	f.startConsumers(t, 3)
	f.load = startLoad(t, f.server.URL(), faultRate, 0)
	for _, p := range f.consumers {
		p.says(t, "handled", 1)
	}
	f.consumers[0].kill()
	f.moves(t, faultRate)
	a := f.finish(t)
	if a.Duplicates > killWorkers {
		t.Errorf("%d duplicates, more than one per worker of the killed process (%d)", a.Duplicates, killWorkers)
	}
	return a.String()
}

func terminateTwice(t *testing.T) string {
	f := newField(t, longshoreConsumer)
	good := f.config
	f.config.Hang, f.config.Drain = true, time.Hour
	f.startConsumers(t, 1)
	f.load = startLoad(t, f.server.URL(), faultRate, 0)
	p := f.consumers[0]
	p.says(t, "hanging", 1)
	p.signal(t, syscall.SIGTERM)
	p.says(t, "stopping", 1)
	began := time.Now()
	p.signal(t, syscall.SIGTERM)
	code := p.exit(t) // the drain would take an hour
	took := time.Since(began)
	if code == 0 {
		t.Error("a forced stop exits with 0")
	}
	f.config, f.consumers = good, nil
	f.startConsumers(t, 1)
	f.moves(t, faultRate)
	a := f.finish(t)
	a.noDuplicates(t)
	return fmt.Sprintf("exit code %d after %v; then %v", code, took.Round(time.Millisecond), a)
}

func terminateHanging(t *testing.T) string {
	f := newField(t, longshoreConsumer)
	good := f.config
	f.config.Hang, f.config.Drain = true, 2*time.Second
	f.startConsumers(t, 1)
	f.load = startLoad(t, f.server.URL(), faultRate, 0)
	f.consumers[0].says(t, "hanging", 1)
	code, took := f.consumers[0].terminate(t)
	if code != 0 {
		t.Errorf("exit code %d; the handler returned when its context ended, so the drain was clean", code)
	}
	if took < f.config.Drain {
		t.Errorf("ended after %v, before the drain timeout of %v: the handler did not get its time", took, f.config.Drain)
	}
	if n := len(f.entries(t)); n != 0 {
		t.Errorf("%d messages in the ledger, though every handler hung", n)
	}
	f.config, f.consumers = good, nil
	f.startConsumers(t, 1)
	f.moves(t, faultRate)
	a := f.finish(t)
	a.noDuplicates(t)
	return fmt.Sprintf("drain timeout %v, exit code %d after %v; then %v", 2*time.Second, code, took.Round(time.Millisecond), a)
}

func freezeConsumer(t *testing.T) string {
	f := newField(t, longshoreConsumer)
	f.startConsumers(t, 2)
	f.load = startLoad(t, f.server.URL(), killRate, 0)
	for _, p := range f.consumers {
		p.says(t, "handled", 1)
	}
	f.consumers[0].signal(t, syscall.SIGSTOP)
	time.Sleep(3 * killAckWait)
	f.consumers[0].signal(t, syscall.SIGCONT)
	f.moves(t, killRate)
	a := f.finish(t)
	// What its workers ran when it froze, and as many that were queued behind them, which it starts before it hears that they went elsewhere.
	if a.Duplicates > 2*killWorkers {
		t.Errorf("%d duplicates, more than two per worker of the frozen process (%d workers)", a.Duplicates, killWorkers)
	}
	return a.String()
}

func brokerDown(t *testing.T) string {
	f := newField(t, longshoreConsumer)
	f.startConsumers(t, 1)
	f.load = startLoad(t, f.server.URL(), faultRate, 0)
	p := f.consumers[0]
	p.says(t, "handled", 1)
	down := lengths(4*time.Second, 60*time.Second)
	f.server.Kill()
	time.Sleep(500 * time.Millisecond) // what is under way ends
	cpu, logged := cpuOf(t, p), len(p.err.all())
	time.Sleep(down)
	cpu, logged = cpuOf(t, p)-cpu, len(p.err.all())-logged
	if err := f.server.Start(); err != nil {
		t.Fatal(err)
	}
	back := f.moves(t, 1)
	if limit := down / 20; cpu > limit {
		t.Errorf("the consumer used %v of CPU in %v without a broker, more than 5 %%: a busy loop", cpu, down)
	}
	if limit := int(down.Seconds()) + 2; logged > limit {
		t.Errorf("%d log lines in %v, more than one a second", logged, down)
	}
	a := f.finish(t)
	return fmt.Sprintf("%v down, CPU %v, %d log lines, back after %v; %v", down, cpu, logged, back.Round(time.Millisecond), a)
}

func brokerAbsent(t *testing.T) string {
	server := natsd.New(t)
	c := consumerConfig{Discipline: longshoreConsumer, URL: server.URL(), Durable: "workers", Ledger: filepath.Join(t.TempDir(), "ledger"),
		Workers: killWorkers, AckWait: killAckWait, Drain: killDrain, Ping: time.Second, Heartbeat: time.Second}
	failFast := c
	failFast.Open = time.Second
	p := startProcess(t, failFast)
	if code := p.exit(t); code != 1 || p.out.count("up") != 0 {
		t.Errorf("with a limit of 1 s for its first contact it exits with %d and says %q; want 1 and never up", code, p.out.tail())
	}
	patient := startProcess(t, c)
	time.Sleep(time.Second)
	if patient.ended() || patient.out.count("up") != 0 {
		t.Fatalf("without a broker: ended %v, says %q; want it to wait and not to be up", patient.ended(), patient.out.tail())
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	f := fieldOn(t, server, longshoreConsumer)
	f.config.Ledger, f.consumers = c.Ledger, []*process{patient}
	patient.says(t, "up", 1)
	f.load = startLoad(t, server.URL(), faultRate, 0)
	patient.says(t, "handled", 1)
	a := f.finish(t)
	a.noDuplicates(t)
	return a.String()
}

// purge lets messages vanish that nobody got: once by the stream's own limit while no process runs, once by a purge while one does. (A purge
// while none runs cannot be noticed: the server moves the durable past it.)
func purge(t *testing.T) string {
	f := newField(t, longshoreConsumer)
	f.startConsumers(t, 1)
	if code, _ := f.consumers[0].terminate(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if _, err := f.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: loadStream, Subjects: []string{"load.>"}, MaxMsgs: 100}); err != nil {
		t.Fatal(err)
	}
	f.publish(t, 300)
	f.consumers = nil
	f.startConsumers(t, 1)
	p := f.consumers[0]
	f.reportsGap(t, p, 100, 200)

	if _, err := f.js.PauseConsumer(t.Context(), loadStream, f.config.Durable, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	f.publish(t, 100)
	stream, err := f.js.Stream(t.Context(), loadStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(351)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.js.ResumeConsumer(t.Context(), loadStream, f.config.Durable); err != nil {
		t.Fatal(err)
	}
	f.reportsGap(t, p, 150, 250)
	if code, _ := p.terminate(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	return fmt.Sprintf("skipped 200 by limit and 50 by purge, reported %d", gaps(p))
}

// publish stores n messages and waits for their confirmation.
func (f *field) publish(t *testing.T, n int64) {
	t.Helper()
	l := startLoad(t, f.server.URL(), killRate, n)
	l.finish()
}

// reportsGap waits until so many are handled and so many reported as skipped, in all.
func (f *field) reportsGap(t *testing.T, p *process, handled int, skipped int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d are handled", handled), func() bool { return len(f.entries(t)) >= handled })
	eventually(t, fmt.Sprintf("%d are reported as skipped", skipped), func() bool { return gaps(p) >= skipped })
	if h, s := len(f.entries(t)), gaps(p); h != handled || s != skipped {
		t.Errorf("%d handled and %d reported as skipped, want %d and %d", h, s, handled, skipped)
	}
}

func recreate(t *testing.T) string {
	f := newField(t, longshoreConsumer)
	f.load = startLoad(t, f.server.URL(), faultRate, 0)
	f.startConsumers(t, 1)
	p := f.consumers[0]
	p.says(t, "handled", 1)
	if err := f.js.DeleteConsumer(t.Context(), loadStream, f.config.Durable); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	code := p.exit(t)
	if code != 1 || p.err.count("consumer:") == 0 {
		t.Errorf("with its durable deleted it exits with %d and %q; want 1 and the reason", code, p.err.tail())
	}
	surfaced := time.Since(began)

	f.config.Recreate, f.consumers = true, nil
	f.startConsumers(t, 1)
	f.consumers[0].says(t, "handled", 1)
	if err := f.js.DeleteConsumer(t.Context(), loadStream, f.config.Durable); err != nil {
		t.Fatal(err)
	}
	f.moves(t, faultRate)
	f.load.stop()
	if a := f.settle(t); a.Lost != 0 || a.Unseen != 0 {
		t.Errorf("after its durable was made anew: %+v", a)
	}

	if err := f.js.DeleteStream(t.Context(), loadStream); err != nil {
		t.Fatal(err)
	}
	f.createStream(t)
	before := len(f.entries(t))
	f.load = startLoad(t, f.server.URL(), killRate, 300)
	f.load.finish()
	eventually(t, "all 300 of the new stream are handled, under sequences that were used before", func() bool { return len(f.entries(t)) >= before+300 })
	if code, _ := f.consumers[0].terminate(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	return fmt.Sprintf("surfaced after %v, exit code %d; with Recreate all went on", surfaced.Round(time.Millisecond), code)
}

func forgottenAcks(t *testing.T) string {
	f := newField(t, longshoreConsumer)
	f.config.Recreate = true
	f.startConsumers(t, 1)
	f.load = startLoad(t, f.server.URL(), faultRate, 0)
	f.consumers[0].says(t, "handled", 1)
	f.moves(t, faultRate)
	durable := filepath.Join(f.server.Dir, "jetstream", "$G", "streams", loadStream, "obs", f.config.Durable)
	kept := filepath.Join(t.TempDir(), "kept")
	f.restart(t, func() { copyDir(t, durable, kept) })
	f.moves(t, 2*faultRate)
	f.restart(t, func() { removeDir(t, durable); copyDir(t, kept, durable) })
	f.moves(t, faultRate)
	floorBack := len(f.entries(t))
	f.restart(t, func() { removeDir(t, durable) })
	f.moves(t, faultRate)
	a := f.finish(t)
	return fmt.Sprintf("floor set back at %d handled, then the durable removed; %v", floorBack, a)
}

// restart kills the server, does something to its data, and starts it.
func (f *field) restart(t *testing.T, between func()) {
	t.Helper()
	f.server.Kill()
	between()
	if err := f.server.Start(); err != nil {
		t.Fatal(err)
	}
}

func manyFailures(t *testing.T) string {
	f := newField(t, longshoreConsumer)
	f.config.FailRuns = 8
	f.startConsumers(t, 1)
	f.load = startLoad(t, f.server.URL(), faultRate, 300)
	f.load.finish()
	a := f.finish(t)
	a.noDuplicates(t)
	c, err := f.js.Consumer(t.Context(), loadStream, f.config.Durable)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.CachedInfo().Config.MaxDeliver; n != -1 {
		t.Errorf("the durable has MaxDeliver %d: what reaches it would be dropped without a word", n)
	}
	return fmt.Sprintf("30 messages failed 8 times each; %v", a)
}

// longHandler has a second process with nothing to do: what the first did not keep extended would go there.
func longHandler(t *testing.T) string {
	f := newField(t, longshoreConsumer)
	f.config.AckWait, f.config.SlowFirst, f.config.Workers = time.Second, 3*time.Second, 1
	f.startConsumers(t, 1)
	f.load = startLoad(t, f.server.URL(), killRate, 41)
	f.load.finish()
	eventually(t, "all 41 are out", func() bool { b, _ := f.broker(t); return b.Delivered >= 41 })
	f.startConsumers(t, 1)
	a := f.finish(t)
	a.noDuplicates(t)
	if a.Handled != 41 {
		t.Errorf("%d of 41 handled", a.Handled)
	}
	pids := map[int]bool{}
	for _, e := range f.entries(t) {
		pids[e.Pid] = true
	}
	if len(pids) != 1 {
		t.Errorf("%d processes handled them: the first did not keep what it held", len(pids))
	}
	return fmt.Sprintf("41 messages, %d runs, %d process", a.Handled+a.Duplicates, len(pids))
}
