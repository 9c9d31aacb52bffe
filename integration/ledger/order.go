package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// An Outcome is how a handler run ended.
type Outcome string

const (
	// Running: no end is known. Its process was killed, or is at it.
	Running Outcome = ""
	// Done: the handler returned nil.
	Done Outcome = "done"
	// Failed: it returned an error, so that the message is tried again or given up.
	Failed Outcome = "failed"
	// Cancelled: its context ended first, so that the message goes back to the broker.
	Cancelled Outcome = "cancelled"
)

// A Run is one run of a handler. Begin and End are stamps of a Clock.
type Run struct {
	ID, Seq    int64
	Pid        int
	Begin, End int64 // End is 0 while Running
	Outcome    Outcome
}

// A Letter is a confirmed dead letter.
type Letter struct {
	Seq int64
	Pid int // whose
	At  int64
}

// An Order says how the order of the keys was kept. Of one key, messages follow each other as they stand in the broker: by Seq. A
// message is settled with the first of its runs that is Done, in whichever process, or with its dead letter.
//
// What is checked at the begin of each run of a message:
//
//   - Every message of its key that stands before it is settled. So nothing is handled for the first time ahead of what it
//     follows, whatever process had that: also over kills, rebalances and give-backs. A message that is settled may run again: it
//     is a duplicate, which the Account counts.
//   - Every message of its key that stands before it, and whose last run in the same process Failed, was Done or dead-lettered
//     since that run, in whichever process. So a retry holds up what comes after it among duplicates, too.
//   - No run of its key is under way in the same process, its own message's included.
//
// The first two are inversions, counted once for each begin, the third is an overlap. A run that was Cancelled may be followed by
// anything that the first check allows: its claim had ended, and its message is elsewhere.
type Order struct {
	// Keys is how many keys were met, and Queued how many messages had one of their key before them.
	Keys   int `json:"keys"`
	Queued int `json:"queued"`
	// Runs of handlers, and those of them that were Failed, and that began after their message was settled.
	Runs   int `json:"runs"`
	Failed int `json:"failed_runs"`
	Again  int `json:"runs_of_settled"`
	// Abreast is the most that were under way in one process at once.
	Abreast int `json:"abreast"`
	// Inversions and Overlaps: none are allowed.
	Inversions int `json:"inversions"`
	Overlaps   int `json:"overlaps"`
	// Found begins the list of both.
	Found []string `json:"found,omitempty"`
}

// maxFound is how many violations are told.
const maxFound = 20

// A keyBook is what is known of one key at one stamp.
type keyBook struct {
	seqs    []int64 // all of its messages that ever ran, sorted
	settled map[int64]bool
	at      map[int64]int64        // when each was settled last
	front   int                    // of seqs, the first that is not settled
	failed  map[int]map[int64]bool // by process: those whose last run there failed, and that were not settled since
	running map[int]int            // by process
}

// inspector goes through what the stamps say, in their order.
type inspector struct {
	order   Order
	keys    map[int64]*keyBook
	running map[int]int // by process
}

// Inspect checks the order. keyOf gives the key of a message's number.
func Inspect(runs []Run, letters []Letter, keyOf func(id int64) int64) Order {
	in := inspector{keys: map[int64]*keyBook{}, running: map[int]int{}}
	bookOf := map[int64]*keyBook{} // by seq
	for _, r := range runs {
		b := in.keys[keyOf(r.ID)]
		if b == nil {
			b = &keyBook{settled: map[int64]bool{}, at: map[int64]int64{}, failed: map[int]map[int64]bool{}, running: map[int]int{}}
			in.keys[keyOf(r.ID)] = b
		}
		b.seqs = append(b.seqs, r.Seq)
		bookOf[r.Seq] = b
	}
	for _, b := range in.keys {
		slices.Sort(b.seqs)
		b.seqs = slices.Compact(b.seqs)
		in.order.Queued += len(b.seqs) - 1
	}
	in.order.Keys, in.order.Runs = len(in.keys), len(runs)

	type moment struct {
		at int64
		do func()
	}
	var moments []moment
	for _, r := range runs {
		moments = append(moments, moment{r.Begin, func() { in.begin(bookOf[r.Seq], r, keyOf(r.ID)) }})
		if r.Outcome != Running {
			moments = append(moments, moment{r.End, func() { in.end(bookOf[r.Seq], r) }})
		}
	}
	for _, l := range letters {
		if b := bookOf[l.Seq]; b != nil {
			moments = append(moments, moment{l.At, func() { b.settle(l.Seq, l.At) }})
		}
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	for _, m := range moments {
		m.do()
	}
	return in.order
}

func (in *inspector) begin(b *keyBook, r Run, key int64) {
	in.running[r.Pid]++
	in.order.Abreast = max(in.order.Abreast, in.running[r.Pid])
	if b.settled[r.Seq] {
		in.order.Again++
	}
	if b.running[r.Pid] > 0 {
		in.order.Overlaps++
		in.found("key %d: process %d begins message %d (at %d) beside another run", key, r.Pid, r.ID, r.Begin)
	}
	b.running[r.Pid]++
	delete(b.failed[r.Pid], r.Seq)
	if b.front < len(b.seqs) && b.seqs[b.front] < r.Seq {
		in.order.Inversions++
		in.found("key %d: process %d begins message %d (at %d) before what stands at %d is settled", key, r.Pid, r.ID, r.Begin,
			b.seqs[b.front])
		return
	}
	for seq := range b.failed[r.Pid] {
		if seq < r.Seq {
			in.order.Inversions++
			in.found("key %d: process %d begins message %d (at %d) although what stands at %d failed there and was not tried again", key,
				r.Pid, r.ID, r.Begin, seq)
			return
		}
	}
}

func (in *inspector) end(b *keyBook, r Run) {
	in.running[r.Pid]--
	b.running[r.Pid]--
	switch r.Outcome {
	case Done:
		b.settle(r.Seq, r.End)
	case Failed:
		in.order.Failed++
		if b.settled[r.Seq] && b.at[r.Seq] >= r.Begin { // in another process meanwhile: this one had lost it
			return
		}
		if b.failed[r.Pid] == nil {
			b.failed[r.Pid] = map[int64]bool{}
		}
		b.failed[r.Pid][r.Seq] = true
	}
}

func (b *keyBook) settle(seq, at int64) {
	for _, failed := range b.failed {
		delete(failed, seq)
	}
	b.settled[seq], b.at[seq] = true, at
	for b.front < len(b.seqs) && b.settled[b.seqs[b.front]] {
		b.front++
	}
}

func (in *inspector) found(format string, args ...any) {
	if len(in.order.Found) < maxFound {
		in.order.Found = append(in.order.Found, fmt.Sprintf(format, args...))
	}
}
