//go:build unix

package kafkabroker

import (
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/integration/kafkad"
)

// TestCutOffReal: a broker loses the end of a log in a power cut, and the log has grown past that again before it is read on, by
// the same process and by one that begins later (f31).
func TestCutOffReal(t *testing.T) {
	if !realWanted() {
		t.Skip(notWanted)
	}
	k := kafkad.Start(t, kafkad.Config{})
	topic := kafkad.Unique("cut")
	if err := k.CreateTopic(t.Context(), topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	ts := &testSystem{brokers: k.Brokers(), group: topic, topics: []string{topic}, parts: 1}
	ts.connect(t)
	start := func() *runner {
		return startRunner(t, Config{Connection: Connection{Brokers: k.Brokers()}, Group: topic, Topics: []string{topic}})
	}
	r := start()
	cut := func(at, from, n int) (want []string) {
		k.Kill(0)
		if err := k.CutLog(0, topic, 0, int64(at)); err != nil {
			t.Fatal(err)
		}
		if err := k.Restart(0); err != nil {
			t.Fatal(err)
		}
		ts.connect(t) // the producer of before is at a number that the log does not have
		return ts.put(t, topic, from, n)
	}
	want := ts.put(t, topic, 0, 50)
	long(t, "all came", func() bool { return r.has(want) })
	long(t, "all is committed", func() bool { return committedOn(t, ts.admin, topic, topic, 1) == 50 })
	if err := r.s.Pause(); err != nil {
		t.Fatal(err)
	}
	want = cut(30, 50, 40)
	if err := r.s.Resume(); err != nil {
		t.Fatal(err)
	}
	long(t, "what was written since came", func() bool { return r.has(want) })
	long(t, "all of that is committed", func() bool { return committedOn(t, ts.admin, topic, topic, 1) == 70 })
	seen := len(r.seen())
	e, said := r.event(broker.Gap, "20 handled")
	t.Logf("the gap: %v", e.Err)
	r.close()
	want = cut(60, 90, 40)
	r = start()
	long(t, "what was written while it was away came", func() bool { return r.has(want) })
	e2, said2 := r.event(broker.Gap, "10 handled")
	t.Logf("the second gap: %v", e2.Err)
	if !said || !said2 || seen != 90 || len(r.seen()) != 40 {
		t.Errorf("%d and %d messages came, want 90 and 40, and a gap that tells of 20 and of 10", seen, len(r.seen()))
	}
}
