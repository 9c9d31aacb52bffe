package natsbroker

import "testing"

// An extension counts once a PING behind it is answered, and then from when it was sent; but not where the lease before it had
// run out by the time of the answer: the server may have read it too late.
func TestExtensionCounts(t *testing.T) {
	for name, c := range map[string]struct {
		pinged, answered int64
		after            bool
		lease            int64
	}{
		"answered in time":                        {1001, 1100, true, 1001},
		"answered in the last moment":             {1001, 2999, true, 1001},
		"answered when the lease has run out":     {1001, 3000, true, 0},
		"the PING went over another connection":   {1001, 1100, false, 0},
		"asked late, and answered in time":        {2900, 2990, true, 2900},
		"asked before it ran out, and too late":   {2900, 3500, true, 0},
		"asked and answered after it had run out": {3100, 3200, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, slots, conn := leases{ackWait: 3000}, newSlots(4), connEpoch{}
			_, sl := slots.add(7, 0)
			l.begin(sl)
			l.start(0, conn) // it takes part in the next round
			if rs := l.extend(slots, 1000, 1<<40, conn); len(rs) != 1 {
				t.Fatalf("%d extended", len(rs))
			}
			p := l.ping(c.pinged, conn)
			p.after = c.after
			l.answered(p)
			l.extended(slots, p, c.answered)
			if sl.lease != c.lease || l.contact != c.pinged {
				t.Errorf("the lease counts from %d, want %d; contact %d", sl.lease, c.lease, l.contact)
			}
		})
	}
}
