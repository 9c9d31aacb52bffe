package ledger_test

import (
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"github.com/longshoremq/longshore/integration/ledger"
)

func TestWrittenByManyReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	var wg sync.WaitGroup
	for w := range int64(4) {
		wg.Go(func() {
			l, err := ledger.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Close()
			for i := range int64(250) {
				if err := l.Write(w*250+i, w*250+i+1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	es, err := ledger.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	acked := map[int64]int64{}
	for i := range int64(1000) {
		acked[i] = i + 1
	}
	got := ledger.Settle(acked, 1000, es, ledger.Stream{Floor: 1000, Delivered: 1000})
	if want := (ledger.Account{Acked: 1000, Handled: 1000}); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestReadLeavesOutAHalfWrittenEntryAndRefusesDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	if err := os.WriteFile(path, []byte("1 1 7 9\n2 2"), 0o644); err != nil {
		t.Fatal(err)
	}
	if es, err := ledger.Read(path); err != nil || len(es) != 1 || es[0] != (ledger.Entry{ID: 1, Seq: 1, Pid: 7, At: 9}) {
		t.Fatalf("got %v, %v", es, err)
	}
	if err := os.WriteFile(path, []byte("1 1 7 9\n2 x 7 9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if es, err := ledger.Read(path); err == nil {
		t.Fatalf("read %v from a damaged ledger", es)
	}
}

func TestSettle(t *testing.T) {
	e := func(id, seq int64) ledger.Entry { return ledger.Entry{ID: id, Seq: seq, Pid: 1} }
	for name, c := range map[string]struct {
		acked   map[int64]int64
		entries []ledger.Entry
		broker  ledger.Broker
		want    ledger.Account
	}{
		"settled and not handled is lost": {
			map[int64]int64{0: 1, 1: 2}, []ledger.Entry{e(0, 1)}, ledger.Stream{Floor: 2, Delivered: 2},
			ledger.Account{Acked: 2, Handled: 1, Lost: 1, LostIDs: []int64{1}}},
		"never delivered is unseen": {
			map[int64]int64{0: 1, 1: 2}, []ledger.Entry{e(0, 1)}, ledger.Stream{Floor: 1, Delivered: 1},
			ledger.Account{Acked: 2, Handled: 1, Unseen: 1}},
		"delivered and unsettled is unseen": {
			map[int64]int64{0: 1, 1: 2}, []ledger.Entry{e(1, 2)}, ledger.Stream{Floor: 0, Delivered: 2, Unsettled: 1},
			ledger.Account{Acked: 2, Handled: 1, Unseen: 1}},
		"delivered, not settled according to the floor, but nothing is out: dropped by the broker, lost for us": {
			map[int64]int64{0: 1}, nil, ledger.Stream{Floor: 0, Delivered: 1},
			ledger.Account{Acked: 1, Lost: 1, LostIDs: []int64{0}}},
		"the same stored message twice is a duplicate": {
			map[int64]int64{0: 1}, []ledger.Entry{e(0, 1), e(0, 1), e(0, 1)}, ledger.Stream{Floor: 1, Delivered: 1},
			ledger.Account{Acked: 1, Handled: 1, Duplicates: 2}},
		"stored twice is the publisher's": {
			map[int64]int64{0: 1}, []ledger.Entry{e(0, 1), e(0, 2)}, ledger.Stream{Floor: 2, Delivered: 2},
			ledger.Account{Acked: 1, Handled: 1, Republished: 1}},
		"of a Kafka partition, what is committed and not handled is lost, the rest unseen": {
			map[int64]int64{0: ledger.Seq(3, 4), 1: ledger.Seq(3, 5), 2: ledger.Seq(4, 0)}, nil, ledger.Committed{3: 5},
			ledger.Account{Acked: 3, Lost: 1, Unseen: 2, LostIDs: []int64{0}}},
		"unconfirmed but handled is recovered, never sent is unexpected": {
			map[int64]int64{0: 1}, []ledger.Entry{e(0, 1), e(1, 2), e(9, 3), e(-1, 4)}, ledger.Stream{Floor: 4, Delivered: 4},
			ledger.Account{Acked: 1, Handled: 1, Recovered: 1, Unexpected: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ledger.Settle(c.acked, 3, c.entries, c.broker); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
