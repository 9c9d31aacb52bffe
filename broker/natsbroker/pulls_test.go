package natsbroker

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

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
		"400 Bad Request - Priority Group missing": pullGroupless,
		"400 Bad Request - Invalid Priority Group": pullGroupless,
		"412 Required Api Level":                   pullBroken, "503 ": pullAbsent, " ": pullRefused, "299 who knows": pullRefused,
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

// A budget of so many messages that its bytes alone bound it is asked for many at once, too.
func TestCreditOfAnyNumber(t *testing.T) {
	for _, messages := range []int{1 << 20, 1 << 25, math.MaxInt} {
		c := credit{gate: gateOf(messages, 64<<20)}
		for n := range 2 {
			r, ok := c.next()
			if n == 0 && (!ok || r.batch < 2) || ok && (r.batch < 1 || r.bytes < 1 || r.bytes > mostUnderWay) {
				t.Errorf("of %d messages it asks for %d, %d bytes", messages, r.batch, r.bytes)
			}
			if ok {
				c.sent(r)
			}
		}
	}
}

// TestRest: a small pull waits for more to ask for, and the puller is told to look when the wait is over; once, and again where
// that is sooner than it was told.
func TestRest(t *testing.T) {
	const budget, ms = 160, int64(time.Millisecond)
	p := pulls{lastSent: 100 * ms}
	p.gate.SetBudget(broker.Budget{Messages: budget, Bytes: 1 << 20})
	p.gate.HandOut(budget, 0)
	for _, tc := range []struct {
		settled int // before that
		at      int64
		want    time.Duration
		wake    bool
	}{
		{1, 100*ms + ms/2, 9*time.Millisecond + 500*time.Microsecond, true},
		{8, 101 * ms, 9 * time.Millisecond, false},
		{1, 101 * ms, time.Millisecond, true}, // a sixteenth is free
		{1, 101*ms + ms/2, 500 * time.Microsecond, false},
		{0, 102 * ms, 0, false},
	} {
		p.gate.Free(tc.settled, 0)
		if d, wake := p.rest(tc.at); d != tc.want || wake != tc.wake {
			t.Errorf("%d free, at %v: rests for %v, wakes: %v; want %v, %v", p.free(), time.Duration(tc.at), d, wake, tc.want, tc.wake)
		}
	}
	p.gate.HandOut(10, 0)
	p.lastSent = 102 * ms
	if d, wake := p.rest(104 * ms); d != 8*time.Millisecond || !wake {
		t.Errorf("after the next pull: rests for %v, wakes: %v; want 8ms, true", d, wake)
	}
}

// Deliveries are counted on behind an inbox that is left, whoever leaves it, so that a consumer that was reset meanwhile is told
// from one that goes on; but not where the server may have crashed, and have forgotten some.
func TestCountBehindAnInbox(t *testing.T) {
	for name, c := range map[string]struct {
		before, meanwhile func(*pulls)
		want              uint64
	}{
		"nothing happened":     {nil, nil, 7},
		"in doubt before":      {(*pulls).doubt, nil, 0},
		"in doubt meanwhile":   {nil, (*pulls).doubt, 0},
		"lost before":          {(*pulls).lost, nil, 0},
		"lost meanwhile":       {nil, (*pulls).lost, 0},
		"left, and left again": {nil, func(p *pulls) { p.leave() }, 7},
	} {
		t.Run(name, func(t *testing.T) {
			ses := &session{}
			first, next := &inbox{ses: ses}, &inbox{ses: ses}
			var p pulls
			p.enter(first)
			first.last = 7
			if c.before != nil {
				c.before(&p)
			}
			p.leave()
			if c.meanwhile != nil {
				c.meanwhile(&p)
			}
			p.enter(next)
			if next.last != c.want {
				t.Errorf("it counts from %d, want %d", next.last, c.want)
			}
			p.enter(&inbox{ses: ses})
			if next = p.in; next.last != c.want {
				t.Errorf("the inbox behind it counts from %d, want %d", next.last, c.want)
			}
		})
	}
}
