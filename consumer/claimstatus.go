package consumer

import (
	"cmp"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A ClaimStatus is how a claim fares here.
type ClaimStatus struct {
	// Topic is empty where the claim is of several, as on JetStream; then Partition is -1.
	Topic     string
	Partition int32
	// Source is which of Config.Sources has it, from 0 on; -1: that of the retry topics.
	Source int
	// Leaving says why nothing of it is started any more: "revoked", "lost" or "drain"; "": it is open.
	Leaving string
	// Held is how many messages of it were received and are not settled, wherever they are here; Running of these are in handlers.
	Held, Running int
	// Window is how full its window of unfinished offsets is, 0..1; -1: there is none.
	Window float64
	// Oldest is the time (Message.Time) of the oldest of what is held; zero: there is none, or none that has a time.
	Oldest time.Time
}

// claimStatuses are as Consumer.Claims says.
func (f *figures) claimStatuses() []ClaimStatus {
	var all []ClaimStatus
	at := map[*broker.Claim]int{}
	for i, feed := range f.feeds {
		if feed.retries {
			i = -1
		}
		for _, b := range feed.assigned.all() {
			at[b] = len(all)
			all = append(all, feed.statusOf(b, i))
		}
	}
	for _, k := range f.claims.all() {
		if i, ok := at[k.Claim]; ok {
			all[i].Leaving = cmp.Or(k.why(), all[i].Leaving)
			for _, s := range k.running() {
				all[i].Running += s.n
			}
		}
	}
	f.eachHeld(func(m *Message) {
		if i, ok := at[m.Claim]; ok {
			all[i].hold(m)
		}
	})
	slices.SortFunc(all, func(a, b ClaimStatus) int {
		return cmp.Or(cmp.Compare(uint(a.Source), uint(b.Source)), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return all
}

// statusOf is what the source knows of a claim.
func (f *feed) statusOf(b *broker.Claim, source int) ClaimStatus {
	s := ClaimStatus{Topic: b.Topic, Partition: b.Partition, Source: source, Window: -1}
	if w, ok := f.source.(broker.Windowed); ok {
		s.Window = w.Window(b)
	}
	if !b.Startable() {
		s.Leaving = whyTurned(b)
	}
	return s
}

// hold counts a message that is held.
func (s *ClaimStatus) hold(m *Message) {
	s.Held++
	if m.Nanos != 0 && (s.Oldest.IsZero() || m.Nanos < s.Oldest.UnixNano()) {
		s.Oldest = m.Time()
	}
}
