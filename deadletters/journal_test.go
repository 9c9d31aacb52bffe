package deadletters

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

// A replay whose journal cannot be written ends there, and publishes nothing that is not written down as begun. The next one
// goes on, with each letter once.
func TestReplayWithoutItsJournal(t *testing.T) {
	for records := range 6 {
		t.Run(fmt.Sprint(records, " records"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bench(t, false, 10)
				full := &filling{Publisher: b.Publisher(), topic: JournalTopic("dead"), room: records}
				sum, err := open(t, b, full).Replay(t.Context(), Replay{Allow: fromOrders, Batch: 5})
				if done := len(copies(t, b, "orders")); err == nil && done != 10 || err != nil && done > records*5 {
					t.Errorf("%d records fit, and %d letters were published: %+v %v", records, done, sum, err)
				}
				if err == nil && full.refused {
					t.Errorf("a record did not fit, and nothing was said: %+v", sum)
				}
				if _, err = open(t, b, b.Publisher()).Replay(t.Context(), Replay{Allow: fromOrders}); err != nil {
					t.Fatal(err)
				}
				wantOnce(t, copies(t, b, "orders"), 10)
			})
		})
	}
}

// A filling publisher has room for some messages to a topic.
type filling struct {
	broker.Publisher
	topic   string
	room    int
	refused bool
}

func (f *filling) Publish(ctx context.Context, ms []broker.Outgoing) error {
	if ms[0].Topic == f.topic {
		if f.room--; f.room < 0 {
			f.refused = true
			return broker.ErrRefused
		}
	}
	return f.Publisher.Publish(ctx, ms)
}

// What is gone from the journal is nowhere else: that letters count as waiting which were replayed is said.
func TestJournalThatLostRecords(t *testing.T) {
	onBoth(t, func(t *testing.T, leased bool) {
		b := bench(t, leased, 6)
		l := open(t, b, b.Publisher())
		if sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders}); err != nil || sum.Unreadable.Cut {
			t.Fatalf("%+v %v", sum, err)
		}
		partition := int32(0)
		if leased {
			partition = -1
		}
		if err := b.LogView().Remove(t.Context(), JournalTopic("dead"), []broker.Place{{Partition: partition, Offset: 2}}); err != nil {
			t.Fatal(err)
		}
		if list(t, l, Filter{}); !l.Unreadable().Cut {
			t.Error("a list does not say that the journal lost records")
		}
		if sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders}); err != nil || !sum.Unreadable.Cut {
			t.Errorf("a replay does not say that the journal lost records: %+v %v", sum, err)
		}
	})
}

// A journal that was made beforehand, with as many partitions as the cluster gives a topic, keeps no order: a replay would stop
// for one that was long over, and a letter that was replayed would be in doubt. It is refused.
func TestJournalWithPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 2, "dead": 3, JournalTopic("dead"): 3}})
		for n := range 9 {
			if err := b.Produce(deadLetter(n)); err != nil {
				t.Fatal(err)
			}
		}
		l := open(t, b, b.Publisher())
		for range 2 {
			sum, err := l.Replay(t.Context(), Replay{Allow: fromOrders, Batch: 2})
			if err == nil || !strings.Contains(err.Error(), "3 partitions") || sum.Replayed != 0 {
				t.Errorf("%+v %v", sum, err)
			}
		}
		if n := len(copies(t, b, "orders")); n != 0 {
			t.Errorf("%d letters were published", n)
		}
	})
}
