package natsbroker

import "testing"

// Naks were received when a PING that was sent after them, over their connection, was answered.
func TestNaksThatWereReceived(t *testing.T) {
	t.Parallel()
	first, next := connEpoch{nth: 1}, connEpoch{nth: 2}
	const ackWait = 100
	heard := func(at int64, over connEpoch) func(*nakked) {
		return func(n *nakked) { n.heard(ping{at: at, over: over}) }
	}
	others := func(written connEpoch, then func(*nakked)) func(*nakked) {
		return func(n *nakked) { n.written(written, 25, true); then(n) }
	}
	for name, tc := range map[string]struct {
		then func(n *nakked)
		now  int64
		want bool
	}{
		"nothing was answered":                   {func(*nakked) {}, 20, true},
		"a PING of after them":                   {heard(11, first), 20, false},
		"a PING of before them":                  {heard(9, first), 20, true},
		"a PING over another connection":         {heard(11, next), 20, true},
		"a PING after others, over another":      {others(next, heard(30, next)), 40, true},
		"a PING after others, over the same one": {others(first, heard(30, first)), 40, false},
		"a PING of the connection before":        {others(next, heard(20, first)), 40, true},
		"the server keeps none so long":          {func(*nakked) {}, 10 + ackWait, false},
		"nor those that were lost":               {heard(11, next), 10 + ackWait, false},
		"the connection is gone":                 {(*nakked).disconnected, 20, true},
		"before Stop: it is":                     {func(n *nakked) { n.mine = 0; n.disconnected() }, 20, false},
		"before Stop: nothing was answered":      {func(n *nakked) { n.mine = 0 }, 20, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n nakked
			n.written(first, 10, true)
			tc.then(&n)
			if got := n.kept(tc.now, ackWait); got != tc.want {
				t.Errorf("kept from others: %v, want %v", got, tc.want)
			}
		})
	}
}

// What is being written is not yet with the server: without a connection it comes back.
func TestNaksBeingWritten(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.nak("a", 0, never)
	out := p.take(here, true)
	if n, _ := p.left(); n != 1 {
		t.Errorf("%d settles are left while a nak is written, want 1", n)
	}
	p.written(out, out.naks, 0)
	if n, _ := p.left(); n != 1 {
		t.Errorf("%d settles are left of a nak that was not written, want 1", n)
	}
}
