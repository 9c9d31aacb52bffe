//go:build unix

package integration

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// A fault is a row of the fault table: what is done to a running set-up. faults.md lists all rows and where each is proved.
// Common to all: nothing lost, nothing unseen, nothing unexpected, nothing left unsettled at the end, and every consumer that was
// not killed exits with 0.
type fault struct {
	id   string
	what string
	on   string                        // the kind of broker; empty: each
	run  func(*testing.T, kind) string // returns what is worth printing
}

var faults = []fault{
	{"f03", "SIGKILL of one of three members", "", killOneOfThree},
	{"f05", "second SIGTERM while draining", "", terminateTwice},
	{"f06", "SIGTERM while a handler hangs", "", terminateHanging},
	{"f07", "SIGSTOP for twice the session timeout, then SIGCONT", "kafka", freezeConsumer},
	{"f08", "SIGSTOP for twice AckWait, then SIGCONT", "nats", freezeConsumer},
	{"f12", "broker down, then back", "", brokerDown},
	{"f13", "broker absent at start", "", brokerAbsent},
	{"f14", "connection cut, by RST", "", cut},
	{"f15", "a storm of resets", "", resetStorm},
	{"f16", "blackhole from broker to client", "", holdToClient},
	{"f17", "blackhole from client to broker: acks do not arrive", "nats", holdAcks},
	{"f18", "blackhole from client to broker: commits do not arrive", "kafka", holdCommits},
	{"f19", "half-open connection that heals", "", halfOpen},
	{"f20", "latency of 300 ms in both directions", "kafka", slowAnswers},
	{"f21", "4 KB/s in slices of 7 bytes", "", slowNetwork},
	{"f22", "every connection dies after 0.5 to 1.5 s", "", shortLives},
	{"f25", "the coordinator moves, and dies; of three brokers", "kafka", coordinatorMoves},
	{"f26", "leaders move, a broker stops and comes back, a broker dies; of three", "kafka", leadersMove},
	{"f27", "a member joins and leaves every 300 ms", "kafka", churnOfMembers},
	{"f28", "a partition is lost under running handlers", "kafka", lostPartitions},
	{"f29", "topic made late, partitions added", "kafka", lateTopic},
	{"f30", "retention passes the committed offset", "kafka", trimmed},
	{"f31", "committed offset beyond the end of the log", "kafka", beyondEnd},
	{"f32", "messages purged that nobody handled", "nats", purge},
	{"f33", "durable or stream deleted and made anew", "nats", recreate},
	{"f34", "the broker forgets acks, or the whole durable", "nats", forgottenAcks},
	{"f35", "more failures than any MaxDeliver", "nats", manyFailures},
	{"f36", "handler longer than AckWait, and 40 queued behind it", "nats", longHandler},
	{"f37", "handlers longer than the session timeout", "kafka", longHandlers},
	{"f38", "dead letters cannot be published", "", lettersDown},
	{"f39", "SIGKILL between the publish of a dead letter and the ack", "", letterTwice},
	{"f40", "burst of large messages while handlers stand still", "", burst},
	{"f41", "the pool grows and shrinks every 100 ms", "", flapPool},
}

// TestFaults prints one line for each: `fNN pass|fail what: figures`.
func TestFaults(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		for _, f := range faults {
			if f.concerns(k) {
				t.Run(f.id, func(t *testing.T) {
					sideBySide(t)
					f.test(t, k, f.what)
				})
			}
		}
	})
}

func (f fault) concerns(k kind) bool { return f.on == "" || f.on == k.name }

// test runs the row and prints its line.
func (f fault) test(t *testing.T, k kind, what string) {
	figures := "stopped before its figures"
	defer func() { verdict(t, f.id, what, figures) }()
	figures = f.run(t, k)
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
	a.mustKeepOrder(t)
	if b := f.on.progress(t); !b.settled {
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
	f.audit(t)
	if inFull() {
		f.on.toolAgrees(t)
	}
	return a
}

// audit fails where books moved back.
func (f *field) audit(t *testing.T) {
	t.Helper()
	for _, r := range f.on.audit(t) {
		if f.overtakes {
			t.Log(r) // and all is committed at the end
		} else {
			t.Error(r)
		}
	}
}

func (a account) noDuplicates(t *testing.T) {
	t.Helper()
	if a.Duplicates != 0 {
		t.Errorf("%d messages were handled twice, want none", a.Duplicates)
	}
}

func (a account) String() string {
	s := fmt.Sprintf("acked %d, lost %d, duplicates %d, on %s", a.Acked, a.Lost, a.Duplicates, a.broker)
	if o := a.kept; o != nil {
		s += fmt.Sprintf("; %d inversions, %d overlaps in %d runs of %d keys, %d failed, at most %d at once", o.Inversions, o.Overlaps,
			o.Runs, o.Keys, o.Failed, o.Abreast)
	}
	return s
}

// moves waits until n more messages are handled.
func (f *field) moves(t *testing.T, n int) time.Duration {
	t.Helper()
	began, before := time.Now(), len(f.entries(t))
	eventually(t, fmt.Sprintf("%d more messages are handled", n), func() bool { return len(f.entries(t)) >= before+n })
	return time.Since(began)
}

func killOneOfThree(t *testing.T, k kind) string {
	f := k.newField(t, k.start(t))
	f.startConsumers(t, 3)
	f.load = f.startLoad(t, faultRate, 0)
	f.atWork(t)
	f.consumers[f.working(0)].kill()
	f.moves(t, faultRate)
	a := f.finish(t)
	if limit := k.perKill(faultRate / 3); a.Duplicates > limit {
		t.Errorf("%d duplicates, more than what one process had done and not yet settled (%d)", a.Duplicates, limit)
	}
	return a.String()
}

func terminateTwice(t *testing.T, k kind) string {
	f := newField(t, k.start(t), longshoreConsumer)
	f.setLease(t, 3*time.Second) // the next process waits for it, and a busy machine does not reach it
	good := f.config
	f.config.Hang, f.config.Drain = true, time.Hour
	f.startConsumers(t, 1)
	f.load = f.startLoad(t, faultRate, 0)
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

func terminateHanging(t *testing.T, k kind) string {
	f := newField(t, k.start(t), longshoreConsumer)
	f.calm(t)
	good := f.config
	f.config.Hang, f.config.Drain = true, 2*time.Second
	f.startConsumers(t, 1)
	f.load = f.startLoad(t, faultRate, 0)
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

func freezeConsumer(t *testing.T, k kind) string {
	f := newField(t, k.start(t), longshoreConsumer)
	f.startConsumers(t, 2)
	f.load = f.startLoad(t, killRate, 0)
	for _, p := range f.consumers {
		p.says(t, "handled", 1)
	}
	f.consumers[0].signal(t, syscall.SIGSTOP)
	time.Sleep(2 * f.config.Lease)
	f.consumers[0].signal(t, syscall.SIGCONT)
	f.moves(t, killRate)
	a := f.finish(t)
	// What its workers ran when it froze, and as many that were queued behind them, which it starts before it hears that they went
	// elsewhere. On Kafka it has a fetch in hand too, so there the promise is another: no commit of it counts any more, which the
	// audit sees.
	if k.name == "nats" && a.Duplicates > 2*killWorkers {
		t.Errorf("%d duplicates, more than two per worker of the frozen process (%d workers)", a.Duplicates, killWorkers)
	}
	return a.String()
}

func brokerDown(t *testing.T, k kind) string {
	f := k.newField(t, k.own(t))
	f.startConsumers(t, 1)
	f.load = f.startLoad(t, faultRate, 0)
	p := f.consumers[0]
	p.says(t, "handled", 1)
	down := lengths(4*time.Second, 60*time.Second)
	f.on.kill()
	time.Sleep(f.config.Lease + 500*time.Millisecond) // what is under way ends, and partitions that are lost are reported
	cpu, logged := cpuOf(t, p), len(p.err.all())
	time.Sleep(down)
	cpu, logged = cpuOf(t, p)-cpu, len(p.err.all())-logged
	if err := f.on.restart(); err != nil {
		t.Fatal(err)
	}
	back := f.moves(t, 1)
	f.moves(t, faultRate)
	if limit := down / 20; cpu > limit {
		t.Errorf("the consumer used %v of CPU in %v without a broker, more than 5 %%: a busy loop", cpu, down)
	}
	if limit := int(down.Seconds()) + 2; logged > limit {
		t.Errorf("%d log lines in %v, more than one a second", logged, down)
	}
	a := f.finish(t)
	return fmt.Sprintf("%v down, CPU %v, %d log lines, back after %v; %v", down, cpu, logged, back.Round(time.Millisecond), a)
}

func brokerAbsent(t *testing.T, k kind) string {
	f := newField(t, k.own(t), longshoreConsumer)
	f.calm(t)
	f.on.kill()
	failFast := f.config
	failFast.Open = time.Second
	p := startProcess(t, failFast)
	if code := p.exit(t); code != 1 || p.out.count("up") != 0 {
		t.Errorf("with a limit of 1 s for its first contact it exits with %d and says %q; want 1 and never up", code, p.out.tail())
	}
	patient := f.start(t)
	f.consumers = []*process{patient}
	time.Sleep(time.Second)
	if patient.ended() || patient.out.count("up") != 0 {
		t.Fatalf("without a broker: ended %v, says %q; want it to wait and not to be up", patient.ended(), patient.out.tail())
	}
	if err := f.on.restart(); err != nil {
		t.Fatal(err)
	}
	patient.says(t, "up", 1)
	f.load = f.startLoad(t, faultRate, 0)
	patient.says(t, "handled", 1)
	f.moves(t, faultRate)
	a := f.finish(t)
	a.noDuplicates(t)
	return a.String()
}

// publish stores n messages and waits for their confirmation.
func (f *field) publish(t *testing.T, n int64) {
	t.Helper()
	l := f.startLoad(t, killRate, n)
	l.finish()
}
