//go:build unix

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/kafkad"
	"github.com/longshoremq/longshore/integration/ledger"
)

// A spread gives each number of a load a key: some keys have a few messages close behind each other, then it is the next ones'
// turn. So all keys come by, and a message has others of its key on its heels.
type spread struct {
	keys    int64 // in all
	abreast int64 // at once
	each    int64 // messages of a key in its turn
}

func (s spread) keyOf(id int64) int64 {
	turn := id / (s.abreast * s.each)
	return (turn*s.abreast + id%s.abreast) % s.keys
}

// once is how many messages all keys have in their first turn.
func (s spread) once() int64 { return s.keys * s.each }

// newSpread is one whose messages of a key are 40 apart: at the rate of a kill row as long as a first backoff.
func newSpread(keys int64) spread { return spread{keys: keys, abreast: 40, each: 4} }

func TestSpread(t *testing.T) {
	s := newSpread(200)
	n := map[int64]int64{}
	for id := range s.once() {
		n[s.keyOf(id)]++
	}
	if int64(len(n)) != s.keys || s.keyOf(0) != s.keyOf(40) || s.keyOf(0) == s.keyOf(160) || s.keyOf(s.once()) != 0 {
		t.Errorf("keys %v", n)
	}
	for key, got := range n {
		if got != s.each {
			t.Errorf("key %d has %d messages, want %d", key, got, s.each)
		}
	}
}

// withKeys gives the load keys, and has each run of a handler stamped.
func (f *field) withKeys(t *testing.T, keys int64, order consumer.Order) {
	t.Helper()
	s := newSpread(keys)
	f.spread, f.config.Order = &s, order
	dir, err := os.MkdirTemp("", "clock") // t.TempDir's may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	f.config.Clock = filepath.Join(dir, "s")
	if f.clock, err = ledger.StartClock(f.config.Clock); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.clock.Close()
		_ = os.RemoveAll(dir)
	})
}

// onePins says whether one consumer gets messages and the others stand by: on JetStream, where a durable has no parts that each
// could be one's.
func (f *field) onePins() bool {
	_, nats := f.on.(*natsSystem)
	return nats && f.config.Order != "" && f.config.Order != consumer.OrderNone
}

// atWork waits until all consumers that get messages have handled one.
func (f *field) atWork(t *testing.T) {
	t.Helper()
	if f.onePins() {
		eventually(t, "a consumer has handled a message", func() bool {
			return slices.ContainsFunc(f.consumers, func(p *process) bool { return !p.ended() && p.atWork() })
		})
		return
	}
	for _, p := range f.consumers {
		p.await(t, "has handled a message", p.atWork)
	}
}

// working is the consumer whose turn it is to be hurt, in turns the i-th; where one gets all messages, that one.
func (f *field) working(i int) int {
	if !f.onePins() {
		return i % len(f.consumers)
	}
	runs, _ := f.clock.Stamped()
	return max(0, slices.IndexFunc(f.consumers, func(p *process) bool { return p.id == runs[len(runs)-1].Pid }))
}

// killWorking is killConsumer, of one that gets messages.
func (f *field) killWorking(t *testing.T, i int) {
	t.Helper()
	f.killConsumer(t, f.working(i))
}

// kept is how the order was kept; nil where there was none to keep.
func (f *field) kept() *ledger.Order {
	if f.clock == nil {
		return nil
	}
	runs, letters := f.clock.Stamped()
	order := ledger.Inspect(runs, letters, f.spread.keyOf)
	return &order
}

// mustKeepOrder fails where an order was to be kept and was not, or where the run proves nothing.
func (a account) mustKeepOrder(t *testing.T) {
	t.Helper()
	if a.kept == nil {
		return
	}
	if a.kept.Inversions != 0 || a.kept.Overlaps != 0 {
		t.Errorf("%d inversions and %d overlaps: %v", a.kept.Inversions, a.kept.Overlaps, a.kept.Found)
	}
	if a.kept.Queued == 0 || a.kept.Abreast < 2 {
		t.Errorf("the run proves nothing: %+v", *a.kept)
	}
}

// inOrder is the kinds of broker with an order by key.
func inOrder() []kind {
	all := slices.Clone(kinds)
	for i := range all {
		all[i].order = consumer.OrderKey
	}
	return all
}

// inOrderAlways has a fake of Kafka's protocol where Kafka is not asked for.
func inOrderAlways() []kind {
	all := inOrder()
	for i := range all {
		if all[i].name == "kafka" && !onRealKafka() {
			all[i].start = func(t *testing.T) system { return newKafkaSystem(t, kafkad.Fake(t)) }
		}
	}
	return all
}

// newField is a field of the product, in the kind's order.
func (k kind) newField(t *testing.T, on system) *field {
	t.Helper()
	f := newField(t, on, longshoreConsumer)
	if k.order != "" {
		f.withKeys(t, faultKeys, k.order)
	}
	return f
}

// faultKeys is how many keys the fault rows have in an order.
const faultKeys = 400

// orderedKill is a kill row by key: 64 workers, and 1 % of the messages fail twice before they succeed.
func orderedKill(order consumer.Order) killRow {
	keys := lengths[int64](1000, 10_000)
	return killRow{Row: "sigkill_in_order", Discipline: longshoreConsumer, Order: order, Keys: keys, Workers: 64,
		Kills:    lengths(2, 5),
		Messages: newSpread(keys).once() * 6 / 5}
}

// TestKillInOrder: SIGKILL of one of two consumers, again and again. The order of each key is kept.
func TestKillInOrder(t *testing.T) {
	sideBySide(t)
	for _, k := range inOrderAlways() {
		t.Run(k.name, func(t *testing.T) {
			sideBySide(t)
			for _, d := range k.products {
				t.Run(string(d), func(t *testing.T) {
					if d == wholeProgram {
						variant(t)
					}
					sideBySide(t)
					killInOrder(t, k, d)
				})
			}
		})
	}
}

func killInOrder(t *testing.T, k kind, d discipline) {
	row := orderedKill(k.order)
	row.Fault, row.Discipline = k.sigkill, d
	a := runKills(t, k.start(t), row, (*field).killWorking)
	a.mustKeepAll(t)
	a.mustKeepOrder(t)
	if a.kept.Failed == 0 || int64(a.kept.Keys) != row.Keys {
		t.Errorf("the run proves little: %+v", *a.kept)
	}
	verdict(t, k.sigkill, fmt.Sprintf("SIGKILL of one of two consumers (%s) in key order, %d times, %d keys, %d workers", d,
		row.Kills, row.Keys, row.Workers), a.String())
}

// TestKillServerInOrder: SIGKILL of the broker, and of the consumer that is at work, in turns. What was settled and forgotten
// comes again, and in the order of each key.
func TestKillServerInOrder(t *testing.T) {
	if !inFull() {
		t.Skip("a variant of TestKillBoth and TestKillInOrder: make chaos runs it")
	}
	sideBySide(t)
	for _, k := range inOrderAlways() {
		t.Run(k.name, func(t *testing.T) {
			sideBySide(t)
			row := orderedKill(k.order)
			row.Fault, row.Row, row.Discipline, row.Kills = k.serverKill, "both_sigkill_in_order", longshoreConsumer, 8
			a := runKills(t, k.own(t), row, func(f *field, t *testing.T, i int) {
				if i%2 == 0 {
					f.killServer(t, i)
				} else {
					f.killWorking(t, i/2)
				}
			})
			a.mustKeepAll(t)
			a.mustKeepOrder(t)
			verdict(t, "f11", fmt.Sprintf("SIGKILL of the broker and of a consumer, in key order, %d times in all", row.Kills), a.String())
		})
	}
}

// TestHarnessSeesDisorder: without an order there are inversions and overlaps. A harness that finds none here proves nothing
// above.
func TestHarnessSeesDisorder(t *testing.T) {
	variant(t)
	sideBySide(t)
	for _, k := range inOrderAlways() {
		t.Run(k.name, func(t *testing.T) {
			sideBySide(t)
			row := orderedKill(consumer.OrderNone)
			a := runKills(t, k.start(t), row, (*field).killWorking)
			a.mustKeepAll(t)
			if a.kept.Inversions == 0 || a.kept.Overlaps == 0 {
				t.Errorf("%d inversions and %d overlaps without an order: this harness cannot see them", a.kept.Inversions, a.kept.Overlaps)
			}
			verdict(t, "disorder", "the same without an order", a.String())
		})
	}
}

// orderedFaults are the rows that run with an order, too; in short the first shortInOrder of them.
var orderedFaults = []string{
	"f03", "f15", "f27", "f28", "f38", "f39", "f41", "f12", "f14", "f16", "f17", "f18", "f19", "f22", "f25", "f26"}

const shortInOrder = 7

// TestFaultsInOrder are rows of TestFaults by key: what holds there holds here, and the order is kept.
func TestFaultsInOrder(t *testing.T) {
	variant(t)
	sideBySide(t)
	ids := lengths(orderedFaults[:shortInOrder], orderedFaults)
	for _, k := range inOrder() {
		t.Run(k.name, func(t *testing.T) {
			sideBySide(t)
			for _, f := range faults {
				if slices.Contains(ids, f.id) && f.concerns(k) {
					t.Run(f.id, func(t *testing.T) {
						sideBySide(t)
						f.test(t, k, f.what+", in key order")
					})
				}
			}
		})
	}
}
