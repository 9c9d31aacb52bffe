package natsbroker

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
)

func TestPinAsksForWhatItMay(t *testing.T) {
	fresh := func(change ...func(*credit)) *credit {
		c := &credit{gate: gateOf(100, 1000), lastID: 7}
		for _, f := range change {
			f(c)
		}
		return c
	}
	asked := func(c *credit) { c.asked = 1 }
	full := func(c *credit) {
		c.gate.HandOut(90, 0)
		c.gate.Hold(10, 0)
	}
	for name, c := range map[string]struct {
		pin    pin
		credit *credit
		want   request
		ok     bool
	}{
		"stands by":                    {pin{}, fresh(), request{8, 1, 0}, true},
		"stands by and has asked":      {pin{}, fresh(asked), request{}, false},
		"stands by with a full budget": {pin{}, fresh(full), request{}, false},
		"lost":                         {pin{id: "x", lost: errPinTaken}, fresh(), request{}, false},
		"gathers, nothing wanted":      {pin{id: "x", gathering: true}, fresh(), request{}, false},
		"gathers, over a full budget":  {pin{id: "x", gathering: true, want: 30}, fresh(full), request{8, 30, 1000}, true},
		"gathers and has asked":        {pin{id: "x", gathering: true, want: 30}, fresh(asked), request{}, false},
		"gathers within the limits": {pin{id: "x", gathering: true, want: 30},
			fresh(func(c *credit) { c.maxBatch, c.maxBytes = 9, 500 }), request{8, 9, 500}, true},
		"gathers one, of any size": {pin{id: "x", gathering: true, want: 1}, fresh(), request{8, 1, 0}, true},
		"gathers one larger than all": {pin{id: "x", gathering: true, want: 5}, fresh(func(c *credit) { c.floor = 1001 }),
			request{8, 1, 0}, true},
		"is pinned, and has its budget": {pin{id: "x"}, fresh(), request{8, 50, 500}, true},
	} {
		r, ok := c.pin.next(c.credit)
		if ok != c.ok || ok && r != c.want {
			t.Errorf("%s: %+v, %v, want %+v, %v", name, r, ok, c.want, c.ok)
		}
	}
}

// What is missing is what the server counts and is not here, and only once all deliveries that it had made by then have come.
func TestPinKnowsWhatIsMissing(t *testing.T) {
	const wait = int64(time.Second)
	p := pin{id: "x", last: 10, arrived: 0}
	for _, c := range []struct {
		at   int64
		has  count
		here int
		n    int
		sure bool
	}{
		{0, count{10, 5}, 3, 2, true},
		{0, count{10, 5}, 5, 0, true},
		{0, count{10, 5}, 6, 0, true},          // our acks were counted in between
		{0, count{12, 5}, 5, 0, false},         // two are on their way
		{wait / 8, count{12, 5}, 5, 0, false},  // still
		{wait / 2, count{12, 5}, 4, 1, true},   // they do not come; one of them is counted
		{wait / 2, count{9, 5}, 5, 0, false},   // it was asked for before the newest came
		{9 * wait, count{9, 1}, 5, 0, true},    // no: somebody has reset the consumer
		{9 * wait, count{13, 5}, 5, 0, false},  // another one is on its way
		{20 * wait, count{10, 0}, 0, 0, true},  // all settled
		{20 * wait, count{10, 7}, 0, 7, true},  // all elsewhere
		{20 * wait, count{11, 7}, 0, 7, false}, // all elsewhere, and one on its way
	} {
		if n, sure := p.missing(c.has, c.here, c.at, wait); n != c.n || sure != c.sure {
			t.Errorf("at %v of %+v with %d here: %d, %v, want %d, %v", time.Duration(c.at), c.has, c.here, n, sure, c.n, c.sure)
		}
	}
}

func TestPinWants(t *testing.T) {
	const pause = 50
	for name, c := range map[string]struct {
		pin  pin
		n    int
		sure bool
		now  int64
		want int
	}{
		"nothing is missing":             {pin{again: true}, 0, true, 99, 0},
		"the others come now, too":       {pin{again: true}, 7, true, 0, 7},
		"some of them are here":          {pin{again: true, twice: 3}, 7, true, 0, 13},
		"a new one came: not yet":        {pin{arrived: 60}, 7, true, 99, 0},
		"a new one came some time ago":   {pin{arrived: 10}, 7, true, 99, 1},
		"deliveries are on their way":    {pin{again: true, arrived: 60}, 7, false, 99, 0},
		"they seem to have gone astray":  {pin{again: true, arrived: 10}, 7, false, 99, 1},
		"nothing is missing, not surely": {pin{}, 0, false, 99, 0},
	} {
		if got := c.pin.wants(c.n, c.sure, c.now, pause); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// What there is to do about the pin. Its term is 100 s here, so that it is renewed each 20 s.
func TestPinActions(t *testing.T) {
	const s = int64(time.Second)
	for name, c := range map[string]struct {
		pin  pin
		view pinView
		want pinAction
		wait time.Duration
	}{
		"stands by":        {pin{}, pinView{now: 50 * s}, pinRest, 20 * time.Second},
		"its turn, unread": {pin{unread: 49 * s}, pinView{now: 50 * s}, pinLearn, time.Second},
		"lost":             {pin{id: "x", lost: errPinTaken}, pinView{now: 50 * s, out: 3}, pinRevoke, 0},
		"lost, and handlers run": {pin{id: "x", lost: errPinTaken, by: 55 * s}, pinView{now: 50 * s, out: 3}, pinRest,
			5 * time.Second},
		"lost, and they are done":       {pin{id: "x", lost: errPinTaken, by: 55 * s}, pinView{now: 50 * s}, pinEnd, 0},
		"lost, and they had their time": {pin{id: "x", lost: errPinTaken, by: 55 * s}, pinView{now: 55 * s, out: 3}, pinEnd, 0},
		"it is time":                    {pin{id: "x", renewed: 30 * s}, pinView{now: 50 * s}, pinRenew, 0},
		"it is not":                     {pin{id: "x", renewed: 35 * s}, pinView{now: 50 * s}, pinRest, 5 * time.Second},
		"gathers":                       {pin{id: "x", renewed: 35 * s, gathering: true}, pinView{now: 50 * s}, pinGather, time.Second},
		"gathers, and is paused": {pin{id: "x", renewed: 35 * s, gathering: true},
			pinView{now: 50 * s, givesBack: true, ready: 1}, pinRest, 5 * time.Second},
		"stopped, and nothing is here": {pin{id: "x", renewed: 35 * s}, pinView{now: 50 * s, givesBack: true}, pinFree, 0},
		"stopped, and handlers run":    {pin{id: "x", renewed: 30 * s}, pinView{now: 50 * s, givesBack: true, out: 1}, pinRenew, 0},
		"given up":                     {pin{id: "x", freed: true}, pinView{now: 50 * s, givesBack: true}, pinRest, 20 * time.Second},
	} {
		c.pin.ttl, c.view.ackWait = 120*s, 100*s
		if got, wait := c.pin.action(c.view); got != c.want || wait != c.wait {
			t.Errorf("%s: %d in %v, want %d in %v", name, got, wait, c.want, c.wait)
		}
	}
}

func TestPinIsDoubtful(t *testing.T) {
	if (&pin{}).doubtful(1000, 100) {
		t.Error("who stands by has nothing to doubt")
	}
	p := &pin{id: "x", seen: 1000}
	if p.doubtful(1074, 100) || !p.doubtful(1075, 100) {
		t.Error("it is not three quarters of the term")
	}
	for _, c := range []Config{{AckWait: time.Second}, {AckWait: 30 * time.Second}} {
		ttl := pinTTL(c.AckWait)
		if term := term(int64(c.AckWait), int64(ttl)); ttl < c.AckWait+renewEvery(term) {
			t.Errorf("a process that dies may lose its pin after %v, while its leases last for %v", ttl-renewEvery(term), c.AckWait)
		}
	}
}

func TestPinIDIsTaken(t *testing.T) {
	h := nats.Header{"Nats-Pin-Id": {"abc"}, "Other": {"x"}}
	if id := takePinID(h); id != "abc" || len(h) != 1 {
		t.Errorf("%q, left %v", id, h)
	}
	if id := takePinID(h); id != "" || len(h) != 1 {
		t.Errorf("%q, left %v", id, h)
	}
	if id := takePinID(nil); id != "" {
		t.Errorf("%q of none", id)
	}
	both := nats.Header{"Nats-Pin-Id": {"the producer's", "abc"}}
	if id := takePinID(both); id != "abc" || both.Get("Nats-Pin-Id") != "the producer's" {
		t.Errorf("%q, left %v", id, both)
	}
}

func TestServersThatPin(t *testing.T) {
	for version, want := range map[string]bool{"2.10.29": false, "2.9.0-beta.1": false, "1.4.1": false, "2.11.0": true,
		"2.11.0-dev": true, "2.15.2": true,
		"3.0.0": true, "": true, "dev": true} {
		if err := canPin(version); (err == nil) != want {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

// A renewal carries the pin's id and a limit that no message keeps.
func TestRenewal(t *testing.T) {
	var got struct {
		Batch, MaxBytes int
		Expires         time.Duration
		Heartbeat       *int `json:"idle_heartbeat"`
		Group, ID       string
		Max             int `json:"max_bytes"`
	}
	if err := json.Unmarshal(renewal("g", "abc"), &got); err != nil {
		t.Fatal(err)
	}
	if got.Batch != 1 || got.Max != 1 || got.Expires != time.Millisecond || got.Heartbeat != nil || got.Group != "g" ||
		got.ID != "abc" {
		t.Errorf("%+v of %s", got, renewal("g", "abc"))
	}
}

func TestReadyIsSorted(t *testing.T) {
	s := newSession(nil, "", 4)
	s.unsorted = true
	for _, seq := range []uint64{5, 2, 9, 1, 7} {
		i, _ := s.slots.add(seq, 0)
		s.ready.push(i)
	}
	s.sort()
	for _, want := range []uint64{1, 2, 5, 7, 9} {
		if got := s.slots.all[s.ready.pop()].seq; got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	}
}

// What the engine is told when a session ends wraps broker.ErrLost.
func TestPinLost(t *testing.T) {
	s, err := NewSource(Config{Connection: Connection{URLs: []string{"nats://127.0.0.1:1"}}, Stream: "S", Consumer: "c"})
	if err != nil {
		t.Fatal(err)
	}
	s.held.open(broker.Options{Ordered: true, Budget: broker.Budget{Messages: 4, Bytes: 1 << 20}})
	stock := &s.held.stock
	stock.leases.ackWait = int64(4 * time.Second)
	ses := newSession(s.held, "", 4)
	ses.pin.group, ses.pin.ttl = "g", int64(5*time.Second)
	stock.ses = ses
	b := &inbox{ses: ses, prefix: "_INBOX.x."}
	s.puller.arrived(b, &nats.Msg{Subject: "s.a", Reply: "$JS.ACK.S.c.1.7.1.1700000000000000000.0",
		Header: nats.Header{pinHeader: {"abc"}}})
	if ses.pin.id != "abc" || !ses.pin.gathering || ses.ready.n != 1 {
		t.Fatalf("%+v, %d ready", ses.pin, ses.ready.n)
	}
	s.puller.arrived(b, &nats.Msg{Subject: b.prefix + "1",
		Header: nats.Header{"Status": {"423"}, "Description": {"Nats-Wrong-Pin-Id"}}})
	if ses.pin.lost == nil || ses.ready.n != 0 || len(s.outbox.settles.naks) != 1 {
		t.Fatalf("%+v, %d ready, %d given back", ses.pin, ses.ready.n, len(s.outbox.settles.naks))
	}
	s.pinner.tend(t.Context())
	if ses.claim.Startable() {
		t.Error("the claim is not revoked")
	}
	s.pinner.tend(t.Context())
	if err := ses.claim.Cause(); !errors.Is(err, broker.ErrLost) || !errors.Is(err, errPinTaken) {
		t.Errorf("the claim ended with %v", err)
	}
	if stock.ses == ses || stock.ses.pin.id != "" {
		t.Error("it does not stand by")
	}
	// What the server had sent before is given back by its own reply.
	s.puller.arrived(b, &nats.Msg{Subject: "s.a", Reply: "$JS.ACK.S.c.1.8.2.1700000000000000000.0",
		Header: nats.Header{pinHeader: {"abc"}}})
	if len(s.outbox.settles.naks) != 2 {
		t.Errorf("%d given back, want 2", len(s.outbox.settles.naks))
	}
}

// Time without an end is more than none: the sum does not run over.
func TestRevokedWithTimeForEver(t *testing.T) {
	p := pin{id: "x", lost: errPinTaken}
	now := int64(time.Hour)
	p.revoke(now, int64(time.Minute), math.MaxInt64)
	if a, _ := p.action(pinView{now: now + int64(time.Second), ackWait: int64(time.Minute), out: 1}); a != pinRest {
		t.Errorf("a second later there is action %d to be taken, want none while a handler runs", a)
	}
}
