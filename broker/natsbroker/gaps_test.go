package natsbroker

import "testing"

func TestPosition(t *testing.T) {
	first := func(c, s uint64) delivery { return delivery{consumer: c, stream: s, delivered: 1} }
	again := func(c, s uint64) delivery { return delivery{consumer: c, stream: s, delivered: 2} }
	type move struct {
		d    delivery
		at   point // polled, when d is zero
		want int64 // 0: no gap
		from uint64
	}
	for name, moves := range map[string][]move{
		"no gap":                  {{d: first(1, 1)}, {d: first(2, 2)}, {d: again(3, 1)}, {d: first(4, 3)}},
		"at the start":            {{d: first(1, 201), want: 200, from: 1}},
		"between":                 {{d: first(1, 1)}, {d: again(2, 1)}, {d: first(3, 5), want: 3, from: 2}, {d: first(4, 6)}},
		"another replica's turn":  {{d: first(1, 1)}, {d: first(5, 9)}, {d: first(6, 12), want: 2, from: 10}},
		"known by the info":       {{d: first(1, 1)}, {at: point{7, 20}}, {d: first(8, 24), want: 3, from: 21}},
		"the info is ahead of us": {{d: first(1, 1)}, {at: point{3, 3}}, {d: first(2, 2)}, {d: first(3, 3)}, {d: first(4, 4)}},
		"purged while idle":       {{d: first(1, 1)}, {at: point{1, 1}}, {at: point{1, 11}, want: 10, from: 2}, {d: first(2, 12)}},
		"a server that forgot": {{d: first(1, 1)}, {d: first(2, 2)}, {d: first(2, 2)}, {d: first(3, 3)},
			{d: first(4, 5), want: 1, from: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			p := position{exact: true}
			filtered := position{}
			p.polled(point{})
			filtered.polled(point{})
			for i, m := range moves {
				var g gap
				var ok, fok bool
				if m.d != (delivery{}) {
					g, ok = p.arrived(m.d)
					_, fok = filtered.arrived(m.d)
				} else {
					g, ok = p.polled(m.at)
					_, fok = filtered.polled(m.at)
				}
				if ok != (m.want > 0) || (ok && (g.n != m.want || g.from != m.from)) {
					t.Fatalf("move %d: %+v, %v", i+1, g, ok)
				}
				if fok {
					t.Fatalf("move %d: a filtered consumer told a gap", i+1)
				}
			}
		})
	}
}

func TestPositionBegin(t *testing.T) {
	for _, c := range []struct {
		delivered, first uint64
		want             gap
	}{{0, 0, gap{}}, {0, 1, gap{}}, {10, 1, gap{}}, {10, 11, gap{}}, {10, 12, gap{11, 1}}, {0, 201, gap{1, 200}}} {
		p, filtered := position{exact: true}, position{}
		p.polled(point{1, c.delivered})
		filtered.polled(point{1, c.delivered})
		g, ok := p.begin(c.delivered, c.first)
		if g != c.want || ok != (c.want.n > 0) {
			t.Errorf("at %d of %d: %+v, %v", c.delivered, c.first, g, ok)
		}
		if _, ok := filtered.begin(c.delivered, c.first); ok {
			t.Error("a filtered consumer told a gap")
		}
		// The next delivery does not tell it again.
		if g, ok := p.arrived(delivery{consumer: 2, stream: max(c.first, c.delivered+1), delivered: 1}); ok {
			t.Errorf("at %d of %d: told again: %+v", c.delivered, c.first, g)
		}
	}
}

// What may have been missing when the consumer was made is no gap; what is missing since then is one.
func TestPositionHoles(t *testing.T) {
	const made = 1000
	at := func(c, s uint64, nanos int64) delivery {
		return delivery{consumer: c, stream: s, delivered: 1, nanos: nanos}
	}
	fresh := position{exact: true, holes: holes{until: 10, made: made}}
	fresh.polled(point{})
	for _, d := range []delivery{at(1, 1, 1), at(2, 3, 3), at(3, 8, 8), at(4, 11, made+1)} { // 9 and 10 were the last ones
		if g, ok := fresh.arrived(d); ok {
			t.Errorf("before %d: %+v", d.stream, g)
		}
	}
	if g, ok := fresh.arrived(at(5, 14, made+4)); !ok || g != (gap{12, 2}) {
		t.Errorf("since then: %+v, %v", g, ok)
	}
	partly := position{exact: true, holes: holes{until: 10, made: made}}
	partly.polled(point{})
	if g, ok := partly.arrived(at(1, 14, made+4)); !ok || g != (gap{11, 3}) {
		t.Errorf("partly since then: %+v, %v", g, ok)
	}
	idle := position{exact: true, holes: holes{until: 10, made: made}}
	idle.polled(point{})
	if g, ok := idle.polled(point{0, 10}); ok {
		t.Errorf("purged before: %+v", g)
	}
	if g, ok := idle.polled(point{0, 12}); !ok || g != (gap{11, 2}) {
		t.Errorf("purged since then: %+v, %v", g, ok)
	}
	later := position{exact: true, holes: holes{made: made}} // a process that comes later
	later.polled(point{3, 3})
	if g, ok := later.arrived(at(4, 5, 5)); ok {
		t.Errorf("of before, to who comes later: %+v", g)
	}
	if g, ok := later.arrived(at(5, 7, made+7)); !ok || g != (gap{6, 1}) {
		t.Errorf("since then, to who comes later: %+v, %v", g, ok)
	}
}
