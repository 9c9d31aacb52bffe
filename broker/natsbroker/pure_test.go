package natsbroker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

func TestParseReply(t *testing.T) {
	d := delivery{delivered: 3, stream: 25, consumer: 8, nanos: 1700000000123456789, pending: 9}
	for reply, ok := range map[string]bool{
		"$JS.ACK.S.c.3.25.8.1700000000123456789.9":                true,
		"$JS.ACK._.hAsH.S.c.3.25.8.1700000000123456789.9":         true,
		"$JS.ACK.hub.hAsH.S.c.3.25.8.1700000000123456789.9.x.y.z": true,
		"$JS.ACK.S.c.3.25.8.1700000000123456789":                  false,
		"$JS.ACK.x.S.c.3.25.8.1700000000123456789.9":              false, // ten tokens: neither form
		"$JS.ACK.S.c.0.25.8.1700000000123456789.9":                false,
		"$JS.ACK.S.c.3.-25.8.1700000000123456789.9":               false,
		"$JS.ACK.S.c.3.25.8.17000000001234567890123.9":            false,
		"$JS.ACK.S.c.3.25..1700000000123456789.9":                 false,
		"$JS.FC.S.c.3.25.8.1700000000123456789.9":                 false,
		"$JS.ACK.": false,
		"":         false,
	} {
		got, is := parseReply(reply)
		if is != ok || (ok && got != d) {
			t.Errorf("%s: %+v, %v", reply, got, is)
		}
	}
	if n := testing.AllocsPerRun(100, func() { parseReply("$JS.ACK._.hAsH.S.c.3.25.8.1700000000123456789.9") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseReply(f *testing.F) {
	for _, s := range []string{"$JS.ACK.S.c.3.25.8.1700000000123456789.9", "$JS.ACK._.h.S.c.3.25.8.1.9.more", "$JS.ACK.......",
		"$JS.ACK.S.c.1.1.1.9223372036854775808.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, ok := parseReply(s)
		if !ok {
			return
		}
		if !strings.HasPrefix(s, "$JS.ACK.") {
			t.Fatalf("%q was read: what is read is published to", s)
		}
		if d.nanos < 0 || d.delivered == 0 || d.stream == 0 || d.consumer == 0 {
			t.Fatalf("%q gave %+v", s, d)
		}
		// What was read can be written and read again.
		again, ok := parseReply(fmt.Sprintf("$JS.ACK.S.c.%d.%d.%d.%d.%d", d.delivered, d.stream, d.consumer, d.nanos, d.pending))
		if !ok || again != d {
			t.Fatalf("%q gave %+v, and then %+v", s, d, again)
		}
	})
}

func gateOf(messages int, bytes int64) (g kit.Gate) {
	g.SetBudget(broker.Budget{Messages: messages, Bytes: bytes})
	return g
}

func TestCredit(t *testing.T) {
	type step func(c *credit) string
	ask := func(c *credit) string {
		r, ok := c.next()
		if !ok {
			return "-"
		}
		c.sent(r)
		return fmt.Sprintf("%d/%d", r.batch, r.bytes)
	}
	came := func(n, size int) step {
		return func(c *credit) string {
			for range n {
				c.arrived(size)
				c.buffer(size)
			}
			return fmt.Sprint(c.asked)
		}
	}
	settled := func(n, size int) step {
		return func(c *credit) string {
			for range n {
				c.drop(size)
			}
			return ""
		}
	}
	answer := func(id uint64, code, text string, pending ...string) step {
		return func(c *credit) string {
			h := nats.Header{"Status": {code}, "Description": {text}}
			if len(pending) == 2 {
				h["Nats-Pending-Messages"], h["Nats-Pending-Bytes"] = pending[:1], pending[1:]
			}
			c.ended(id, readStatus(h))
			return fmt.Sprintf("%d/%d", c.asked, c.askedBytes)
		}
	}
	reset := func(c *credit) string { c.reset(); return "" }
	type check struct {
		do   step
		want string
	}
	for name, c := range map[string]struct {
		credit credit
		steps  []check
	}{
		"halves, then quarters": {credit{gate: gateOf(100, 1000)}, []check{
			{ask, "50/500"}, {ask, "50/500"}, {ask, "-"}, {came(30, 1), "70"}, {settled(24, 1), ""}, {ask, "-"}, {settled(1, 1), ""}, {ask,
				"25/25"}, {ask, "-"},
		}},
		"one message at a time": {credit{gate: gateOf(1, 100)}, []check{
			{ask, "1/100"}, {ask, "-"}, {came(1, 10), "0"}, {ask, "-"}, {settled(1, 10), ""}, {ask, "1/100"},
		}},
		"a batch that is complete gives bytes back": {credit{gate: gateOf(100, 1000)}, []check{
			{ask, "50/500"}, {ask, "50/500"}, {came(50, 2), "50"}, {answer(1, "409", "Batch Completed", "0", "400"), "50/500"},
		}},
		"a late answer to what is void changes nothing": {credit{gate: gateOf(1, 100)}, []check{
			{ask, "1/100"}, {came(1, 10), "0"}, {settled(1, 10), ""}, {ask, "1/100"}, {answer(1, "409", "Batch Completed", "0", "90"),
				"1/100"},
		}},
		"expired": {credit{gate: gateOf(100, 1000)}, []check{
			{ask, "50/500"}, {came(10, 5), "40"}, {answer(1, "408", "Request Timeout", "40", "450"), "0/0"},
		}},
		"refused as a whole": {credit{gate: gateOf(100, 1000)}, []check{
			{ask, "50/500"}, {ask, "50/500"}, {answer(2, "409", "Exceeded MaxWaiting"),
				"50/500"}, {answer(7, "409", "Exceeded MaxWaiting"), "50/500"},
		}},
		"a limit of the consumer": {credit{gate: gateOf(100, 1000), maxBatch: 20}, []check{{ask, "20/200"}}},
		"larger than asked for: one alone may go over": {credit{gate: gateOf(10, 100)}, []check{
			{ask, "5/50"}, {ask, "5/50"}, {came(1, 20), "9"}, {answer(1, "409", "Message Size Exceeds MaxBytes", "4", "30"), "5/50"}, {ask,
				"-"},
			{answer(2, "409", "Message Size Exceeds MaxBytes", "5", "50"), "0/0"}, {ask, "4/80"},
			{answer(3, "409", "Message Size Exceeds MaxBytes", "4", "80"), "0/0"}, {ask, "1/0"}, {ask, "-"}, {came(1, 500), "0"}, {ask,
				"-"},
			{settled(1, 20), ""}, {ask, "-"}, {settled(1, 500), ""}, {ask, "5/50"},
		}},
		"bytes used up to the last one end a request without a word": {credit{gate: gateOf(100, 1000)}, []check{
			{ask, "50/500"}, {ask, "50/500"}, {came(10, 100), "0"}, {settled(10, 100), ""}, {ask, "50/500"},
		}},
		"those of one of two": {credit{gate: gateOf(100, 1000)}, []check{
			{ask, "50/500"}, {ask, "50/500"}, {came(9, 100), "91"}, {answer(2, "409", "Message Size Exceeds MaxBytes", "46", "100"),
				"0/0"},
		}},
		"what remained was too little, not what was asked for": {credit{gate: gateOf(10, 100)}, []check{
			{ask, "5/50"}, {ask, "5/50"}, {came(4, 20), "6"}, {answer(1, "409", "Message Size Exceeds MaxBytes", "3", "10"), "3/10"},
			{answer(2, "409", "Message Size Exceeds MaxBytes", "3", "10"), "0/0"}, {settled(2, 20), ""}, {ask, "3/60"},
		}},
		"one without a bound is answered first": {credit{gate: gateOf(10, 100), floor: 101}, []check{
			{ask, "1/0"}, {func(c *credit) string { c.floor = 0; return "" }, ""}, {ask, "5/55"}, {came(1, 5), "5"}, {came(1, 55), "0"},
		}},
		"several without a bound": {credit{gate: gateOf(10, 0)}, []check{
			{func(c *credit) string { c.sent(request{1, 3, 0}); return "" }, ""}, {came(1, 5), "2"}, {came(1, 5), "1"}, {ask,
				"-"}, {came(1, 5), "0"},
		}},
		"no more at once than a server keeps for a connection": {credit{gate: gateOf(100, 64<<20)}, []check{
			{ask, "50/8388600"}, {ask, "50/8388600"}, {ask, "-"}, {came(8, 1<<20), "92"}, {ask, "-"}, {settled(8, 1<<20), ""}, {ask, "-"},
			{answer(1, "408", "Request Timeout", "46", "4194296"), "46/4194296"}, {ask, "50/11650850"},
		}},
		"a little is not worth a request while one is under way": {credit{gate: gateOf(100, 1000)}, []check{
			{ask, "50/500"}, {came(4, 100), "46"}, {settled(2, 100), ""}, {ask, "6/650"}, {settled(1, 100), ""}, {ask, "-"},
		}},
		"no bytes at all": {credit{gate: gateOf(10, 0)},
			[]check{{ask, "1/0"}, {came(1, 5), "0"}, {ask, "-"}, {settled(1, 5), ""}, {ask, "1/0"}}},
		"reset": {credit{gate: gateOf(10, 100)}, []check{{ask, "5/50"}, {ask, "5/50"}, {reset, ""}, {ask, "5/50"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, s := range c.steps {
				if got := s.do(&c.credit); got != s.want {
					t.Fatalf("step %d: %q, want %q; %+v", i+1, got, s.want, c.credit)
				}
			}
		})
	}
}

func TestVerdicts(t *testing.T) {
	for text, want := range map[string]verdict{
		"100 Idle Heartbeat": pullAlive, "404 No Messages": pullEnded, "408 Request Timeout": pullEnded,
		"408 Interest Expired": pullEnded,
		"409 Consumer Deleted": pullDeleted, "409 Leadership Change": pullReset, "409 Server Shutdown": pullReset,
		"409 Message Size Exceeds MaxBytes": pullTooLarge, "409 Batch Completed": pullEnded, "409 Exceeded MaxWaiting": pullRefused,
		"409 Exceeded MaxRequestBatch of 5": pullRefused, "409 Consumer is push based": pullBroken, "400 Bad Request - x": pullBroken,
		"412 Required Api Level": pullBroken, "503 ": pullAbsent, " ": pullRefused, "299 who knows": pullRefused,
	} {
		code, rest, _ := strings.Cut(text, " ")
		if got := readStatus(nats.Header{"Status": {code}, "Description": {rest}}); got.verdict != want {
			t.Errorf("%s: %d, want %d", text, got.verdict, want)
		}
	}
	if st := readStatus(nats.Header{"Status": {"408"}, "Nats-Pending-Messages": {"-1"}, "Nats-Pending-Bytes": {"x"}}); st.counted {
		t.Error("nonsense was taken for counts")
	}
}

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

// The table against a plain map, with random adds, finds and removals.
func TestSlots(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	table := newSlots(0)
	type key struct {
		seq   uint64
		nanos int64
	}
	want := map[key]uint64{} // to the token
	void := []uint64{}
	for range 50_000 {
		k := key{r.Uint64N(400), int64(r.Uint64N(3))}
		token, here := want[k]
		s := table.find(k.seq, k.nanos)
		if (s != nil) != here {
			t.Fatalf("find %v: %v, want %v", k, s != nil, here)
		}
		switch {
		case !here:
			i, s := table.add(k.seq, k.nanos)
			s.state = slotOut
			want[k] = table.token(i)
		case r.IntN(2) == 0:
			i := table.out(token)
			if i == noSlot {
				t.Fatalf("token %x is not out", token)
			}
			table.remove(i)
			delete(want, k)
			void = append(void, token)
		}
		if len(void) > 0 && table.out(void[r.IntN(len(void))]) != noSlot {
			t.Fatal("a void token is out")
		}
		if table.used != len(want) {
			t.Fatalf("%d used, want %d", table.used, len(want))
		}
	}
}

func TestFinishedIsBounded(t *testing.T) {
	const room = 4 * finishedPage
	f := newFinished(room - 100)
	for i := range uint64(10_000) {
		f.add(i, 7)
	}
	for i := range uint64(10_000) {
		if got, want := f.has(i, 7), i >= 10_000-room; got != want {
			t.Fatalf("%d: %v", i, got)
		}
		if f.has(i, 8) {
			t.Fatalf("%d of another time is taken for finished", i)
		}
	}
	f.forget()
	if f.has(9_999, 7) {
		t.Fatal("not forgotten")
	}
	none := newFinished(0)
	none.add(1, 1)
	if none.has(1, 1) {
		t.Fatal("remembered without room")
	}
}

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

// A consumer that has little to do takes little memory for what it has finished.
func TestFinishedTakesWhatItNeeds(t *testing.T) {
	f := newFinished(1 << 16)
	for i := range uint64(finishedPage) {
		f.add(5*finishedPage+i, 7)
	}
	used := 0
	for _, p := range f.pages {
		if p != nil {
			used++
		}
	}
	if used != 1 {
		t.Errorf("%d pages for %d messages", used, finishedPage)
	}
}

// What was settled takes no room from those that wait, and who was given back once more is not the oldest any more.
func TestRunsRememberThoseThatWait(t *testing.T) {
	for name, do := range map[string]func(r *runs){
		"others come and are settled": func(r *runs) {
			r.put(1, 0, 3, 0)
			for i := range uint64(100) {
				r.put(10+i, 0, 1, 0)
				r.settled(10+i, 0)
			}
		},
		"it had nothing to tell for a while": func(r *runs) {
			r.put(1, 0, 0, 5) // put off
			r.put(1, 0, 0, 0) // given back, by a pause
			r.put(1, 0, 3, 0)
			for i := range uint64(9) {
				r.put(10+i, 0, 1, 0)
			}
		},
		"it fails again and again": func(r *runs) {
			for i := range uint64(100) {
				r.put(1, 0, 3, 0)
				r.put(10+i, 0, 1, 0)
			}
		},
	} {
		r := newRuns(10)
		do(r)
		if e, ok := r.get(1, 0); !ok || e.failed != 3 {
			t.Errorf("%s: the message that waits is known by %+v, %v", name, e, ok)
		}
	}
}

func TestRunsAreBounded(t *testing.T) {
	r := newRuns(10)
	for i := range uint64(25) {
		r.put(i, 0, int32(i+1), 0)
	}
	for i := range uint64(25) {
		e, ok := r.get(i, 0)
		if ok != (i >= 15) || (ok && e.failed != int32(i+1)) {
			t.Fatalf("%d: %+v, %v", i, e, ok)
		}
	}
	r.put(20, 0, 9, 5)
	if e, _ := r.get(20, 0); e.failed != 9 || e.due != 5 || len(r.known) != 10 {
		t.Fatalf("%+v, %d known", e, len(r.known))
	}
	r.put(21, 0, 0, 0) // says nothing
	r.settled(22, 0)
	if len(r.known) != 8 {
		t.Fatalf("%d known", len(r.known))
	}
}

func TestHeaders(t *testing.T) {
	block := "NATS/1.0\r\nb: 1\r\na: 2\r\nb: 3\r\nempty:\r\nB: 4\r\nutf: \xff\xfe\r\nlast: 5\r\n\r\n"
	h := headersOf(decode(t, block))
	var got []string
	for k, v := range h.All() {
		got = append(got, k+"="+string(v))
	}
	want := []string{"b=1", "a=2", "b=3", "empty=", "B=4", "utf=\xff\xfe", "last=5"}
	if !slices.Equal(got, want) || h.Len() != len(want) {
		t.Errorf("All gave %q, Len %d", got, h.Len())
	}
	if n := h.Bytes(); n != len("b1"+"3"+"a2"+"empty"+"B4"+"utf\xff\xfe"+"last5") { // a repeated key is in memory once
		t.Errorf("Bytes gave %d", n)
	}
	for k, want := range map[string]string{"b": "3", "B": "4", "empty": ""} {
		if v, ok := h.Get(k); !ok || v == nil || string(v) != want {
			t.Errorf("Get(%q) gave %q, %v", k, v, ok)
		}
	}
	if v, ok := h.Get("c"); ok || v != nil {
		t.Errorf("Get of none gave %q", v)
	}
	for range h.All() {
		break
	}
	if h := headersOf(nil); h.Len() != 0 || h.Bytes() != 0 || h.Codec != nil {
		t.Error("no headers are not the zero value")
	}
}

func decode(t testing.TB, block string) nats.Header {
	t.Helper()
	h, err := nats.DecodeHeadersMsg([]byte(block))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Whatever a producer writes: no panic, all three methods agree, and nothing is invented.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{"a: b\r\n", "Longshore-Key: k\r\nlongshore-key: x\r\n", "Longshore-Key-Base64: AAECDQo=\r\n",
		"Longshore-Key-Base64: %%\r\n",
		": x\r\na:\r\na: \r\n", "a: " + strings.Repeat("x", 5000) +
			"\r\n", "Longshore-Attempts: -1\r\nStatus: 409\r\n", "\xff\x00: \xfe\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, block []byte) {
		nh, err := nats.DecodeHeadersMsg(append(append([]byte("NATS/1.0\r\n"), block...), "\r\n"...))
		if err != nil {
			return
		}
		h := headersOf(nh)
		last, n := map[string]string{}, 0
		for k, v := range h.All() {
			last[k] = string(v)
			n++
		}
		if n != h.Len() {
			t.Fatalf("All gave %d, Len %d", n, h.Len())
		}
		for k, want := range last {
			if v, ok := h.Get(k); !ok || string(v) != want {
				t.Fatalf("Get(%q) gave %q, All %q", k, v, want)
			}
		}
		keyOf(nh)
	})
}

// BenchmarkHeaders compares reading nats.go's map when asked with writing it back into a block at receipt.
func BenchmarkHeaders(b *testing.B) {
	h := decode(b, "NATS/1.0\r\nNats-Msg-Id: 123\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntype: "+
		"order\r\n\r\n")
	b.Run("map", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			headersOf(h)
		}
	})
	b.Run("map, and Get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			headersOf(h).Get("type")
		}
	})
	b.Run("block", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			block := make([]byte, 0, 256)
			for k, vs := range h {
				for _, v := range vs {
					block = append(append(append(append(block, k...), ": "...), v...), "\r\n"...)
				}
			}
			_ = broker.Headers{Raw: block}
		}
	})
}

func TestEncode(t *testing.T) {
	for name, c := range map[string]struct {
		out broker.Outgoing
		ok  bool
	}{
		"plain": {broker.Outgoing{Topic: "a.b"}, true},
		"all": {broker.Outgoing{Topic: "a", Key: []byte("k"), Value: []byte("v"), ID: "i",
			Headers: []broker.Header{{Key: "x", Value: []byte("1")}, {Key: "x", Value: []byte("2")}}}, true},
		"binary key":      {broker.Outgoing{Topic: "a", Key: []byte{0, 13, 10, 255}}, true},
		"key with blanks": {broker.Outgoing{Topic: "a", Key: []byte(" k ")}, true},
		"empty key":       {broker.Outgoing{Topic: "a", Key: []byte{}}, true},
		"error of two lines": {broker.Outgoing{Topic: "a",
			Headers: []broker.Header{{Key: broker.HeaderError, Value: []byte("a\r\nb\n")}}}, true},
		"empty subject":         {broker.Outgoing{}, false},
		"wildcard":              {broker.Outgoing{Topic: "a.*"}, false},
		"full wildcard":         {broker.Outgoing{Topic: "a.>"}, false},
		"empty token":           {broker.Outgoing{Topic: "a..b"}, false},
		"blank":                 {broker.Outgoing{Topic: "a b"}, false},
		"line break in a value": {broker.Outgoing{Topic: "a", Headers: []broker.Header{{Key: "x", Value: []byte("a\nb")}}}, false},
		"blank in a name":       {broker.Outgoing{Topic: "a", Headers: []broker.Header{{Key: "x y", Value: nil}}}, false},
		"empty name":            {broker.Outgoing{Topic: "a", Headers: []broker.Header{{}}}, false},
		"line break in the id":  {broker.Outgoing{Topic: "a", ID: "a\nb"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := encode(c.out)
			if (err == nil) != c.ok {
				t.Fatal(err)
			}
			if err == nil && string(keyOf(m.Header)) != string(c.out.Key) {
				t.Fatalf("the key came out as %q", keyOf(m.Header))
			}
		})
	}
}

func TestPause(t *testing.T) {
	c := Connection{ReconnectWait: 100 * time.Millisecond, MaxReconnectWait: 2 * time.Second}
	for n := range 100 {
		d := c.pause(n)
		if full := min(100*time.Millisecond<<min(max(n-1, 0), 16), 2*time.Second); d < full/2 || d > full {
			t.Fatalf("pause %d is %v, of %v", n, d, full)
		}
	}
}

func TestMayDial(t *testing.T) {
	word := Connection{User: "u", Password: broker.NewSecret("x")}
	with := func(c Connection, urls ...string) Connection { c.URLs = urls; return c }
	allowed, byTLS := word, word
	allowed.PlaintextAuth, byTLS.TLS.Enabled = true, true
	for name, c := range map[string]struct {
		c    Connection
		at   string
		want bool
	}{
		"this machine":      {with(word, "nats://127.0.0.1:4222"), "127.0.0.1:1", true},
		"this machine, v6":  {with(word, "nats://localhost:4222"), "[::1]:1", true},
		"another":           {with(word, "nats://127.0.0.1:4222"), "192.0.2.1:4222", false},
		"another, by name":  {with(word, "ws://127.0.0.1:4222"), "elsewhere:4222", false},
		"no address":        {with(word, "nats://127.0.0.1:4222"), "localhost", false},
		"a token":           {Connection{Token: broker.NewSecret("x")}, "192.0.2.1:4222", false},
		"allowed":           {allowed, "192.0.2.1:4222", true},
		"TLS":               {byTLS, "192.0.2.1:4222", true},
		"TLS by URL":        {with(word, "nats://127.0.0.1", "TLS://192.0.2.1"), "192.0.2.9:4222", true},
		"TLS of websockets": {with(word, "wss://192.0.2.1"), "192.0.2.9:4222", true},
		"nothing secret":    {Connection{NKeySeedFile: "f"}, "192.0.2.1:4222", true},
	} {
		if err := c.c.mayDial(c.at); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
