package deadletters

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

// partitionsOf is where each payload of a topic is.
func partitionsOf(t *testing.T, b *membroker.Broker, topic string) map[string]int32 {
	t.Helper()
	at := map[string]int32{}
	if _, err := b.LogView().Scan(t.Context(), broker.Scan{Topic: topic},
		func(m *broker.Message) error { at[string(m.Value)] = m.Partition; return nil }); err != nil {
		t.Fatal(err)
	}
	return at
}

// TestReplayToPartition: a letter goes back to the partition that it came from, for its producer may choose by another hash of
// the key: elsewhere it would run beside the newer ones of its key. To another topic, with another key, and where that partition
// is not there any more, the key chooses.
func TestReplayToPartition(t *testing.T) {
	for name, test := range map[string]struct {
		replay     Replay
		origin     func(n int) string
		partitions int
		chosen     bool // by the key
	}{
		"back":        {replay: Replay{}},
		"named":       {replay: Replay{To: "orders"}},
		"edited":      {replay: Replay{Edit: func(o *broker.Outgoing) error { o.Value = bytes.Clone(o.Value); return nil }}},
		"another key": {replay: Replay{Edit: func(o *broker.Outgoing) error { o.Key = []byte("two"); return nil }}, chosen: true},
		"elsewhere":   {replay: Replay{To: "other"}, chosen: true},
		"not there":   {replay: Replay{}, origin: func(int) string { return "7" }, chosen: true},
		"forged":      {replay: Replay{}, origin: func(int) string { return "-1" }, chosen: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 5, "other": 5, "dead": 1}})
				const letters = 40
				origin := func(n int) string { return fmt.Sprint(n % 5) }
				if test.origin != nil {
					origin = test.origin
				}
				for n := range letters {
					l := deadLetter(n, broker.Header{Key: broker.HeaderOriginalPartition, Value: []byte(origin(n))})
					l.Key = []byte("one")
					if err := b.Produce(l); err != nil {
						t.Fatal(err)
					}
				}
				r, to := test.replay, "orders"
				r.Allow = fromOrders
				if r.To != "" {
					to = r.To
				}
				if sum, err := open(t, b, b.Publisher()).Replay(t.Context(), r); err != nil || sum.Replayed != letters {
					t.Fatalf("%+v %v", sum, err)
				}
				at, used := partitionsOf(t, b, to), map[int32]bool{}
				for n := range letters {
					no := at[fmt.Sprint(n)]
					used[no] = true
					if !test.chosen && fmt.Sprint(no) != origin(n) {
						t.Errorf("letter %d went to partition %d, want %s", n, no, origin(n))
					}
				}
				if test.chosen && len(used) != 1 {
					t.Errorf("letters of one key went to partitions %v", used)
				}
			})
		})
	}
}
