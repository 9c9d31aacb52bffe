package membroker_test

import (
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
)

// A scan says whether all is there that was stored, and a topic that is made anew hides nothing.
func TestScannedWhole(t *testing.T) {
	for name, leased := range map[string]bool{"partitioned": false, "leased": true} {
		t.Run(name, func(t *testing.T) {
			b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1}, Leased: leased})
			v := b.LogView()
			scan := func(want int, whole bool) (first int64) {
				t.Helper()
				first = -1
				n := 0
				done, err := v.Scan(t.Context(), broker.Scan{Topic: "orders"}, func(m *broker.Message) error {
					if n++; n == 1 {
						first = m.Offset
					}
					return nil
				})
				if err != nil || n != want || done.Whole != whole {
					t.Errorf("%d messages, whole: %v, %v; want %d, %v", n, done.Whole, err, want, whole)
				}
				return first
			}
			produce(t, b, "orders", 10)
			first := scan(10, true)
			place := broker.Place{Partition: -1, Offset: first + 5}
			if err := v.Remove(t.Context(), "orders", []broker.Place{place}); err != nil {
				t.Fatal(err)
			}
			scan(9, false)
			if err := b.Recreate("orders"); err != nil {
				t.Fatal(err)
			}
			produce(t, b, "orders", 10)
			scan(10, true)
			if err := b.Trim("orders", 0, first+1); err != nil {
				t.Fatal(err)
			}
			scan(9, false)
			if err := v.Remove(t.Context(), "orders", []broker.Place{{Partition: 7}}); err == nil {
				t.Error("a message of a partition that is not there was removed")
			}
		})
	}
}
