package natsbroker

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// TestPeers plays what a process hears, second by second, and which share it has after each.
func TestPeers(t *testing.T) {
	none := func(all int) broker.Share { return broker.Share{All: all} }
	one := func(all int) broker.Share { return broker.Share{Held: 1, All: all} }
	for name, steps := range map[string][]struct {
		hears string // names of those who say that they are there; -x: x goes
		want  broker.Share
	}{
		"alone":             {{"me", none(1)}, {"me", none(1)}, {"me", none(1)}, {"me", none(1)}, {"me", one(1)}, {"me", one(1)}},
		"others were there": {{"me a b", none(3)}, {"me a b", none(3)}, {"me a b", none(3)}, {"me a b", none(3)}, {"me a b", one(3)}},
		"another one comes": {{"me", none(1)}, {"me", none(1)}, {"me", none(1)}, {"me", none(1)}, {"me a", one(2)}, {"me a", one(2)}},
		"one goes":          {{"me a", none(2)}, {"me a", none(2)}, {"me a", none(2)}, {"me a", none(2)}, {"me -a", one(1)}},
		"one dies":          {{"me a", none(2)}, {"me", none(2)}, {"me", none(2)}, {"me", none(2)}, {"me", one(1)}},
		"beats are lost": {{"me a", none(2)}, {"me", none(2)}, {"me a", none(2)}, {"a", none(2)}, {"me", one(2)}, {"a", one(2)},
			{"me", one(2)}},
		"cut off, and back": {{"me", none(1)}, {"me", none(1)}, {"me", none(1)}, {"me a", none(2)}, {"me a", one(2)}, {"", one(2)},
			{"", one(2)}, {"", none(2)}, {"", none(2)}, {"me a", none(2)}, {"me a", none(2)}, {"me a", none(2)}, {"me a", none(2)},
			{"me a", one(2)}},
		"it cannot hear itself": {{"a", none(1)}, {"a", none(1)}, {"a", none(1)}, {"a", none(1)}, {"a", none(1)}},
		"it goes":               {{"me", none(1)}, {"me", none(1)}, {"me", none(1)}, {"me a", none(2)}, {"-me a", none(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			now, p := time.Unix(1000, 0), newPeers("me")
			for i, s := range steps {
				for id := range strings.FieldsSeq(s.hears) {
					if gone, ok := strings.CutPrefix(id, "-"); ok {
						p.leaves(gone)
					} else {
						p.hears(id, now)
					}
				}
				if got := p.share(now); got != s.want {
					t.Errorf("after %d s: %+v, want %+v", i, got, s.want)
				}
				now = now.Add(beatEvery)
			}
		})
	}
}

// TestPeersAddUp has processes come, go, die, stand still and be cut off at random, each hearing the others some time later: the
// shares are never more than the whole, and are the whole soon after the last trouble.
func TestPeersAddUp(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		g := peerGroup{r: r}
		for step := range 7000 {
			if step < 6000 {
				g.trouble()
			}
			g.heal(step >= 6000)
			g.step()
			if sum := g.sum(); sum > 1.0001 {
				t.Fatalf("seed %d, after %v: the shares add up to %v: %s", seed, time.Duration(step)*peerStep, sum, &g)
			}
		}
		if sum := g.sum(); len(g.all) > 0 && sum < 0.9999 {
			t.Errorf("seed %d: 10 s after the last trouble the shares add up to %v: %s", seed, sum, &g)
		}
	}
}

const peerStep = 10 * time.Millisecond

// A peerGroup is processes that hear each other over a connection each.
type peerGroup struct {
	r    *rand.Rand
	now  time.Duration
	next int
	all  []*peerProcess
	sent []peerWord
}

type peerProcess struct {
	p          *peers
	beat       time.Duration // when it says next that it is there
	cut, still bool
	until      time.Duration // it is cut off, or stands still
}

type peerWord struct {
	at             time.Duration
	word, id, over string
}

func (g *peerGroup) clock() time.Time { return time.Unix(1000, 0).Add(g.now) }

func (g *peerGroup) trouble() {
	if g.r.IntN(40) > 0 {
		return
	}
	if len(g.all) == 0 || len(g.all) < 12 && g.r.IntN(3) == 0 {
		g.next++
		g.all = append(g.all, &peerProcess{p: newPeers(fmt.Sprint("p", g.next)), beat: g.now})
		return
	}
	i := g.r.IntN(len(g.all))
	x := g.all[i]
	switch g.r.IntN(6) {
	case 0:
		if !x.cut && !x.still {
			g.say(x, wordGone)
		}
		g.all = append(g.all[:i:i], g.all[i+1:]...)
	case 1:
		g.all = append(g.all[:i:i], g.all[i+1:]...) // killed
	default:
		if g.now >= x.until+6*time.Second { // see peers: it is not cut off again and again
			x.still = g.r.IntN(2) == 0
			x.cut = !x.still
			x.until = g.now + time.Duration(g.r.IntN(1000))*peerStep
		}
	}
}

func (g *peerGroup) heal(all bool) {
	for _, x := range g.all {
		if all || g.now >= x.until {
			x.cut, x.still = false, false
		}
	}
}

// say sends a word to all; it takes up to 30 ms.
func (g *peerGroup) say(x *peerProcess, word string) {
	for _, to := range g.all {
		g.sent = append(g.sent, peerWord{g.now + time.Duration(g.r.IntN(4))*peerStep, word, x.p.me, to.p.me})
	}
}

func (g *peerGroup) step() {
	g.now += peerStep
	var later []peerWord
	for _, w := range g.sent {
		if w.at > g.now {
			later = append(later, w)
			continue
		}
		for _, x := range g.all {
			if x.p.me == w.over && !x.cut && !x.still {
				g.hear(x, w)
			}
		}
	}
	g.sent = later
	for _, x := range g.all {
		if g.now < x.beat || x.still {
			continue
		}
		word := wordHere
		if x.p.greets(g.clock()) {
			word = wordHello
		}
		if !x.cut {
			g.say(x, word)
		}
		x.beat = g.now + x.p.every()
	}
}

func (g *peerGroup) hear(x *peerProcess, w peerWord) {
	if w.word == wordGone {
		x.p.leaves(w.id)
		return
	}
	x.p.hears(w.id, g.clock())
	if w.word == wordHello && w.id != x.p.me {
		x.beat = g.now
	}
}

// sum is what those have together that can do anything.
func (g *peerGroup) sum() (sum float64) {
	for _, x := range g.all {
		if !x.still {
			sum += x.p.share(g.clock()).Part()
		}
	}
	return sum
}

func (g *peerGroup) String() string {
	var b strings.Builder
	for _, x := range g.all {
		fmt.Fprintf(&b, "%s %+v cut %v still %v; ", x.p.me, x.p.share(g.clock()), x.cut, x.still)
	}
	return b.String()
}

// FuzzSaid: whatever is published to the subject, nothing of it is taken for a process that does not name itself.
func FuzzSaid(f *testing.F) {
	for _, s := range []string{"hello a", "here " + strings.Repeat("x", 64), "gone b", "here ", "hello", "", "HERE a", "here a b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		word, id, ok := said(text)
		if !ok {
			if word != "" || id != "" {
				t.Errorf("%q: %q of %q, though it is none", text, word, id)
			}
			return
		}
		if len(id) == 0 || len(id) > longestName || text != word+" "+id {
			t.Errorf("%q: %q of %q", text, word, id)
		}
	})
}
