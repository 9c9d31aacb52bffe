package consumer

import (
	"cmp"
	"slices"
	"time"
)

// A Call is a handler call that has not returned.
type Call struct {
	// Topic, Partition, Offset and ID are the message's; of a batch, its first one's.
	Topic     string
	Partition int32
	Offset    int64
	ID        string
	// Key is the beginning of its key, at most 256 bytes, which may be anything; KeyBytes is how long the key is, -1: it has none.
	// It may be personal data: show it as the payload.
	Key      string
	KeyBytes int
	// Attempt is which try it is, 1 at first, as far as is known.
	Attempt int32
	// Messages is how many it was called with: 1, or those of a batch.
	Messages int
	// Since is when it began, late by up to 20 ms.
	Since time.Time
	// Stuck: its time and Config.StuckAfter are over, and it has not returned.
	Stuck bool
}

// calls are as Consumer.Calls says.
func (f *figures) calls(n int) []Call {
	found := f.workers.strays.all() // first: who is given up meanwhile is seen twice, and not missed
	for _, k := range f.claims.present() {
		for _, s := range k.running() {
			found[s.m] = s
		}
	}
	all := make([]Call, 0, len(found))
	for _, s := range found {
		all = append(all, f.callOf(s))
	}
	slices.SortFunc(all, func(a, b Call) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition),
			cmp.Compare(a.Offset, b.Offset))
	})
	return all[:min(max(0, n), len(all))]
}

// keyShown bytes of a key are told.
const keyShown = 256

// keyOf is the beginning of a key, copied, and its length; -1: there is none.
func keyOf(m *Message) (begins string, bytes int) {
	if m.Key == nil {
		return "", -1
	}
	return string(m.Key[:min(len(m.Key), keyShown)]), len(m.Key)
}

func (f *figures) callOf(s sighting) Call {
	key, bytes := keyOf(s.m)
	return Call{
		Topic: s.m.Topic, Partition: s.m.Partition, Offset: s.m.Offset, ID: s.m.ID(), Attempt: max(s.m.Attempt, s.m.Runs+1),
		Key: key, KeyBytes: bytes, Messages: s.n, Since: s.at, Stuck: f.watchdog.isStuck(time.Since(s.at)),
	}
}
