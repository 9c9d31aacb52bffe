//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A mutant is the product with one promise broken. A test that exists has to fail for it; a mutant that survives means that
// nothing tests the promise.
type mutant struct {
	name string
	file string // below the module's root
	old  string // must stand there exactly once
	new  string
	pkg  string
	test string // -run
}

var mutants = []mutant{
	{"ack on receipt", "broker/natsbroker/stock.go",
		"	ses.ready.push(i)\n	s.receiver.rouse()\n", "	ses.ready.push(i)\n	s.outbox.ack(m.Reply)\n	s.receiver.rouse()\n",
		"./integration", "TestKillConsumers/nats/longshore"},
	{"ack on receipt, in the program", "broker/natsbroker/stock.go",
		"	ses.ready.push(i)\n	s.receiver.rouse()\n", "	ses.ready.push(i)\n	s.outbox.ack(m.Reply)\n	s.receiver.rouse()\n",
		"./integration", "TestKillConsumers/nats/program"},
	{"no extension of leases", "broker/natsbroker/leases.go",
		"		replies = append(replies, sl.reply)\n", "",
		"./integration", "TestFaults/nats/f36"},
	{"only what was handed out is extended", "broker/natsbroker/leases.go",
		"		if sl.state == slotFree {\n			continue\n		}\n		if l.expired(sl, now)",
		"		if sl.state != slotOut {\n			continue\n		}\n		if l.expired(sl, now)",
		"./broker/natsbroker", "TestLongHandlersAreExtended|Conformance"},
	{"an extension counts however late its answer is", "broker/natsbroker/leases.go",
		" && !l.expired(sl, now) {\n			sl.lease", " {\n			sl.lease",
		"./broker/natsbroker", "TestExtensionCounts"},
	{"finished messages are forgotten", "broker/natsbroker/finished.go",
		"	return page != nil && page[", "	return false && page[",
		"./broker/natsbroker", "TestServerKilled|TestFinishedIsBounded"},
	{"finished messages are remembered by sequence alone", "broker/natsbroker/finished.go",
		"== finishedEntry{seq, nanos}", ".seq == seq",
		"./broker/natsbroker", "TestFinished|TestRecreate|Conformance"},
	{"a redelivery of what is out is handed out", "broker/natsbroker/stock.go",
		"if sl := ses.slots.find(d.stream, d.nanos); sl != nil {",
		"if sl := ses.slots.find(d.stream, d.nanos); sl != nil && sl.state == slotFree {",
		"./broker/natsbroker", "TestRedeliveryWhileOut|Conformance"},
	{"a give-back by a lease that ran out", "broker/natsbroker/settle.go",
		"		case s.leases.expired(sl, now):\n", "		case false:\n",
		"./broker/natsbroker", "TestNoGiveBackByAnExpiredLease|Conformance"},
	{"a durable with a delivery limit", "broker/natsbroker/durable.go",
		"		MaxDeliver:     -1,", "		MaxDeliver:     5,",
		"./integration", "TestFaults/nats/f35"},
	{"gaps are not reported", "broker/natsbroker/gaps.go",
		"	if !follows || !p.exact || d.stream", "	if follows || !p.exact || d.stream",
		"./broker/natsbroker", "TestPosition|TestGap"}, // in processes a poll of the consumer may be first to see it
	{"a dead letter is acked although its publish failed", "consumer/letters.go",
		"		if err == nil {\n			there = append(there, xs[i])",
		"		if err == nil || xs[i].tries < 1 && !xs[i].retries() {\n			there = append(there, xs[i])",
		"./consumer", "DeadLetter"},
	{"a limit of deliveries is that of the beginning", "consumer/feed.go",
		"	if l, ok := f.source.(broker.DeliveryLimiter); ok {\n", "	if l, ok := f.source.(broker.DeliveryLimiter); ok && l == nil {\n",
		"./broker/natsbroker", "TestMaxDeliverIsLowered"},
	{"who is cut off keeps its share", "broker/natsbroker/peers.go",
		"	if now.Sub(p.heard[p.me]) >= p.slow(silentAfter) {", "	if now.Sub(p.heard[p.me]) >= p.slow(goneAfter) {",
		"./broker/natsbroker", "TestPeersAddUp"},
	{"who is new has a share before the others could hear of it", "broker/natsbroker/peers.go",
		"now.Sub(p.since) >= p.slow(goneAfter)", "now.Sub(p.since) >= 0",
		"./broker/natsbroker", "TestPeersAddUp"},
	{"a share is not followed", "handlers/middleware/ratelimit.go",
		"	if share := l.sharing.at(now); share != l.share {", "	if share := l.sharing.at(now); share != l.share && l.share.All == 1 {",
		"./handlers/middleware", "TestSharedRateLimit"},
	{"every process has the whole of a shared limit", "handlers/middleware/sharing.go",
		"	return max(1, int(part))", "	_ = part\n	return calls",
		"./handlers/middleware", "TestSharedConcurrencyLimit"},
	{"a failed handler is acked", "consumer/decide.go",
		"	if o.cancelled {\n		return decision{verdict: VerdictGiveBack, runs: o.runs}",
		"	if !o.cancelled {\n		return decision{verdict: VerdictAck, runs: o.runs}",
		"./consumer", "TestFailed|TestDecide"},
	{"what a drain finds unstarted is dropped", "consumer/till.go",
		"	t.nack(k, back, lanes)\n	t.tell.tell(GivenBack", "	t.settled(len(back), nil)\n	t.tell.tell(GivenBack",
		"./consumer", "TestDrain"},
	{"a message cancelled by the stop counts as an attempt", "consumer/decide.go",
		"	if o.cancelled {\n", "	if o.cancelled && o.runs < 0 {\n",
		"./consumer", "TestDrain|TestDecide"},
	{"a failed message is acked before its retry topic has it", "consumer/letters.go",
		"		if err == nil {\n			there = append(there, xs[i])", "		if err == nil || xs[i].retries() {\n			there = append(there, xs[i])",
		"./consumer", "TestRetryTopic"},
	{"what a failed run of a batch emitted goes with the others' acks", "consumer/judge.go",
		"	if !w.emitted.Load().hasWhole() {\n", "	if true {\n",
		"./consumer", "TestEmitInBatches"},
	{"what was emitted is published although the handler failed", "consumer/worker.go",
		"		if err == nil && w.emitted.Load() != nil {\n			err = ws.publishEmitted",
		"		if w.emitted.Load() != nil {\n			_ = ws.publishEmitted",
		"./consumer", "TestEmitOfFailedRunIsDropped"},
	{"outputs go with the ack of a message of a batch that was skipped", "consumer/judge.go",
		"			w.emitted.Load().take(i) // skipped\n", "",
		"./consumer", "TestEmitOfSkippedInBatches"},
	{"a retry lets the next of its key pass", "consumer/retries.go",
		"!d.keep && x.lane == nil {", "!d.keep {",
		"./consumer", "TestKeyOrder"},
	{"no message waits for the one before it", "consumer/inorder.go",
		"		numbers[i] = in.cfg.Order.laneOf(&ms[i])\n", "		numbers[i] = 0\n",
		"./integration", "TestKillInOrder"},
	{"what waits behind a message that goes back goes on", "consumer/lanes.go",
		"c.n > 0 && (c.first.k == again || c.first.k.closed.Load())", "c.n > 0 && c.first.k.closed.Load()",
		"./consumer", "TestOrderOverLostLease"},
	{"what a block has room for is used for another claim", "consumer/chain.go",
		"b == nil || b.k != k || b.alone", "b == nil || b.alone",
		"./consumer", "TestLanesAgainstModel"},
	{"a row goes over the end of a claim", "consumer/chain.go",
		"c.n > 0 && c.first.k == r.k && c.first.alone", "c.n > 0 && c.first.alone",
		"./consumer", "TestLanesAgainstModel"},
	{"an empty lane stays", "consumer/lanes.go",
		"		t.table.remove(at)\n	default:\n", "	default:\n",
		"./consumer", "TestManyKeysLeaveNothing"},
	{"a lane is free before what waited in it is back", "consumer/lanes.go",
		"	case kept:\n", "	case kept && false:\n",
		"./consumer", "TestReceivedBesideAReturn"},
	{"what a downstream turns down at once counts as what handlers do", "consumer/pace.go",
		"return int64(took)/int64(n) < p.good.Load()/quickShare", "return int64(took)/int64(n) < 0*p.good.Load()/quickShare",
		"./consumer", "TestQuickFailureIsNoCall"},
	{"a run goes on behind a message that failed", "consumer/worker.go",
		"		ws.till.recall(w, i+1)\n		w.passed = true\n", "		w.passed = true\n",
		"./consumer", "TestRunOfLane"},
	{"a worker acks before others have acked what stands before it", "consumer/work.go",
		"	if w.acking.Load() != nil {\n", "	if w.acking.Load() == nil {\n",
		"./consumer", "TestRunIsAckedInOrder"},
	{"a worker that was replaced goes on with its run", "consumer/worker.go",
		"		case w.run && v&replaced != 0:\n", "		case w.passed && v&replaced != 0:\n",
		"./consumer", "TestReplacedWorkerLeavesItsRun"},
	{"the end of a claim opens the lane of what runs", "consumer/work.go",
		"	if w.run && a == 0 && b > 0 {\n", "	if w.run && b > 0 {\n",
		"./consumer", "TestLostLaneFreesBudget"},
	{"what makes room stops all others", "consumer/lanes.go",
		"hold: l.Limit + max(1, l.Limit/4), thaw: l.Limit, clears", "hold: l.Limit, thaw: l.Limit / 2, clears",
		"./consumer", "TestPoisonedKeyCostsOthersNothing"},
	{"a dead letter lets the next of its key pass before it is stored", "consumer/letters.go",
		"		o, by = d.compose(x)\n", "		d.till.release(x.k, x.lane, false)\n		x.lane = nil\n		o, by = d.compose(x)\n",
		"./consumer", "TestBadInputInOrder"},
	{"a finished message waits for the end of its worker's micro-batch", "consumer/cutter.go",
		"if w.each = each; n > 1 {", "if n > 1 {",
		"./consumer", "TestMicroBatchesAckEach"},
	{"messages are given to one worker though others are idle", "consumer/intake.go",
		"l.Live < l.Max || l.Backlog < 2*maxMicroBatch*l.Max", "l.Live < l.Max",
		"./consumer", "TestNoMicroBatchesForFew"},
	{"a complete batch lingers on in memory", "consumer/batches.go",
		"\t\tb.forget(g)\n\t\tg.init", "\t\tg.init",
		"./consumer", "TestHandledBatchesAreNotKept"},
	{"the rest of a batch is a message", "consumer/work.go",
		"run: w.run, batch: w.batch, past", "run: w.run, past",
		"./consumer", "TestHeldWorkers/batches"},
	{"what is received beside a lapse starts before it", "consumer/lanes.go",
		"	if len(t.lapses) > 0 {", "	if len(t.lapses) > len(ms) {",
		"./consumer", "TestReceivedBesideALapse"},
	{"what a held worker has not begun is dropped", "consumer/watchdog.go",
		"	if u0 >= u1 {\n		return nil, false\n	}\n", "	if u0 <= u1 {\n		return nil, false\n	}\n",
		"./consumer", "TestHeldWorkers"},
	{"one receipt for many acks", "broker/natsbroker/ackwindow.go",
		"	case b.begun:\n", "	case true:\n",
		"./broker/natsbroker", "TestAcksOverLeaders"},
	{"what a lame server says is a receipt", "broker/natsbroker/ackwindow.go",
		"	case !taken:\n", "	case false:\n",
		"./broker/natsbroker", "TestAcksToALameServer"},
	{"acks without a receipt are not sent again", "broker/natsbroker/ackwindow.go",
		"		again = append(again, b.acks...)\n		w.forget(i)\n	}\n	w.hurry", "		w.forget(i)\n	}\n	w.hurry",
		"./broker/natsbroker", "TestAcksOverLeaders"},
	{"old acks go to whichever consumer is there", "broker/natsbroker/outbox.go",
		"	if over != o.sure {\n		if over != o.asked {", "	if false {\n		if over != o.asked {",
		"./broker/natsbroker", "TestVouched|TestOldAcksToANewStream"},
	{"who is pinned does not miss what was lost on its way", "broker/natsbroker/pin.go",
		"	if p.last != 0 && d.consumer > p.last+1 {", "	if false && p.last != 0 && d.consumer > p.last+1 {",
		"./broker/natsbroker", "TestOrderOverALostConnection|TestOrderBesideADeadConnection"},
	{"what others settle late is taken for what they have", "broker/natsbroker/balance.go",
		"	if !b.looked { //", "	if true {\n		return fallNone\n	}\n	if !b.looked { //",
		"./broker/natsbroker", "TestOrderDespiteLateAcks|TestAckBeforeTheFirstCount"},
	{"who is pinned does not wait for what others had", "broker/natsbroker/stock.go",
		"s.pulls.gate.Out() > ses.out || ses.pin.gathering ||", "s.pulls.gate.Out() > ses.out ||",
		"./integration", "TestKillInOrder/nats"},
}

// TestMutants runs in full only (make chaos): each mutant is a build of its own.
func TestMutants(t *testing.T) {
	if !inFull() {
		t.Skip("in short: run make chaos")
	}
	for _, m := range slices.Concat(mutants, kafkaMutants, dlqMutants, poolMutants) {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			if out, err := m.run(t, false); err != nil {
				t.Fatalf("%s -run %q fails without the mutant too: it proves nothing\n%s", m.pkg, m.test, out)
			}
			out, err := m.run(t, true)
			switch {
			case err == nil:
				fmt.Printf("mutant survived: %s\n", m.name)
				t.Errorf("with %q, %s -run %q passes: nothing tests that promise\n%s", m.name, m.pkg, m.test, out)
			case !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "panic: "):
				t.Errorf("the mutant was not tested: %v\n%s", err, out)
			default:
				fmt.Printf("mutant killed: %s\n", m.name)
			}
		})
	}
}

// TestMutantsApply: each mutant still has its place in the source.
func TestMutantsApply(t *testing.T) {
	for _, m := range slices.Concat(mutants, kafkaMutants, dlqMutants, poolMutants) {
		if n := strings.Count(read(t, filepath.Join("..", m.file)), m.old); n != 1 {
			t.Errorf("mutant %q: its place is %d times in %s, want once:\n%s", m.name, n, m.file, m.old)
		}
	}
}

// run tests the mutant by an overlay, so that no file of the source changes; or, broken false, the product as it is.
func (m mutant) run(t *testing.T, broken bool) (string, error) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mutated := filepath.Join(dir, "mutated.go")
	source := read(t, path)
	if broken {
		source = strings.Replace(source, m.old, m.new, 1)
	}
	if err := os.WriteFile(mutated, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-count=1", "-timeout=5m", "-run", m.test, m.pkg)
	cmd.Dir = ".."
	// The overlay is in the environment because a test may build the program. The mutant's own run of this package is a short one,
	// and not a run of mutants.
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+filepath.Join(dir, "overlay.json"),
		"LONGSHORE_CHAOS=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
