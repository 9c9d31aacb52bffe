package natsbroker

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker/kit"
)

// credit is the account of what may still be asked for: the budget, less what is out or buffered, which the gate counts, and less
// what is asked for and not yet here. It does no I/O. Not safe for concurrent use.
//
// No message says which request it answers: those with room left take turns. So messages and bytes are counted over all of them.
// The account closes when each has ended, and how a request ends is what nextWaiting of nats-server 2.15 says:
//
//	its time is over, or the next message is larger than its bytes   told, with how much remained (Nats-Pending-Messages, -Bytes)
//	its messages are used up and bytes remain                        the same
//	its bytes are used up to the last one                            nothing is said, however many messages remained
//	its messages are used up and it had no bound of bytes            nothing is said, for nothing remained
//
// The third is no rare accident. Where messages are of one size, what was freed is a whole number of them, and so is what is
// asked for next. Then the messages that remained would be asked for to the end of time; that no bytes are left of any request
// gives them away.
type credit struct {
	gate       kit.Gate // out, and held: buffered
	maxBatch   int      // of one request, by the consumer's settings; 0: no limit
	maxBytes   int64    // the same
	asked      int
	askedBytes int64
	requests   []request
	lastID     uint64
	floor      int64 // a request for fewer bytes would be refused: the next message is larger
}

// here is how many messages are out or buffered, and their bytes.
func (c *credit) here() (n int, bytes int64) {
	n, bytes = c.gate.Held()
	return n + c.gate.Out(), bytes + c.gate.OutBytes()
}

// buffer counts a message that was received; drop one that is not kept.
func (c *credit) buffer(size int) { c.gate.Hold(1, int64(size)) }
func (c *credit) drop(size int)   { c.gate.Hold(-1, -int64(size)) }

// keep counts one that was handed out as buffered again.
func (c *credit) keep(size int) {
	c.gate.Free(1, int64(size))
	c.buffer(size)
}

// handOut counts a buffered message as out.
func (c *credit) handOut(size int) {
	c.gate.Hold(-1, -int64(size))
	c.gate.HandOut(1, int64(size))
}

// A request is one pull request under way.
type request struct {
	id    uint64
	batch int
	bytes int64 // 0: no bound. Such a one is sent only when nothing else is under way
}

// mostUnderWay bounds the bytes that are asked for and not yet here. The server drops a connection as a slow consumer when more
// than its max_pending waits to be sent: 64 MiB, unless it is configured otherwise. More than this brought no higher rate.
const mostUnderWay = 16 << 20

// next says what to ask for now. A request is worth sending for a quarter of the budget, or when nothing else is under way
// (and then not at once, where it is small: see pulls.rest).
func (c *credit) next() (request, bool) {
	budget := c.gate.Budget()
	here, bytes := c.here()
	free := budget.Messages - here - c.asked
	if free < 1 || (c.asked > 0 && free < c.quarter()) {
		return request{}, false
	}
	// Half at a time, so that the next request is with the server before this one is used up.
	batch := min(free, budget.Messages-budget.Messages/2)
	if c.maxBatch > 0 {
		batch = min(batch, c.maxBatch)
	}
	most := min(budget.Bytes, mostUnderWay)
	room := min(budget.Bytes-bytes, mostUnderWay) - c.askedBytes
	share := room // all of it, when less was refused, or there are more places than bytes
	if c.floor == 0 && free <= mostUnderWay {
		share = room / int64(free) * int64(batch)
	}
	if c.maxBytes > 0 {
		share = min(share, c.maxBytes)
	}
	fit := c.fit(share)
	if c.asked > 0 && room < most/4 && fit < c.quarter() {
		return request{}, false
	}
	switch {
	case share > 0 && share >= c.floor:
		return request{c.lastID + 1, min(batch, max(fit, 1)), share}, true
	case c.asked == 0 && (room > 0 || bytes == 0): // one message may go over, or be larger than all of it
		return request{c.lastID + 1, 1, 0}, true
	}
	return request{}, false
}

// full says that the budget is used up, as often as that, by what is here.
func (c *credit) full(times int) bool {
	here, bytes := c.here()
	return here/times >= c.gate.Budget().Messages || bytes/int64(times) >= c.gate.Budget().Bytes
}

func (c *credit) quarter() int { return max(c.gate.Budget().Messages/4, 1) }

// fit is how many messages so many bytes are enough for, by those that are here. Asked for no more than that, the server tells
// when they have come: what it would not say is not asked for.
func (c *credit) fit(bytes int64) int {
	n, has := c.here()
	if n == 0 || has < int64(n) {
		return c.gate.Budget().Messages
	}
	return int(min(bytes*int64(n)/has, int64(c.gate.Budget().Messages)))
}

func (c *credit) sent(r request) {
	c.lastID = r.id
	c.requests = append(c.requests, r)
	c.asked += r.batch
	c.askedBytes += r.bytes
}

// arrived takes a message off what is asked for.
func (c *credit) arrived(size int) {
	c.floor = 0                                          // the next one is another
	if len(c.requests) > 0 && c.requests[0].bytes == 0 { // it was there first, so it is its turn
		size = 0
		if c.requests[0].batch--; c.requests[0].batch == 0 {
			c.requests = append(c.requests[:0], c.requests[1:]...)
		}
	}
	c.took(1, int64(size))
}

func (c *credit) took(n int, bytes int64) {
	c.asked = max(c.asked-n, 0)
	c.askedBytes = max(c.askedBytes-bytes, 0)
	unbounded := len(c.requests) > 0 && c.requests[0].bytes == 0
	// Nothing is under way, and what rounding left is void; or only what was asked for with bytes that are used up.
	if c.asked == 0 || c.askedBytes == 0 && !unbounded {
		c.reset()
	}
}

// reset forgets all requests: they are void, or the connection is another one.
func (c *credit) reset() {
	c.asked, c.askedBytes, c.requests = 0, 0, c.requests[:0]
}

// ended takes request id off the account as the server reported it.
func (c *credit) ended(id uint64, st status) {
	for i, r := range c.requests {
		if r.id != id {
			continue
		}
		c.requests = append(c.requests[:i], c.requests[i+1:]...)
		if !st.counted { // refused as a whole
			st.messages, st.bytes = r.batch, r.bytes
		}
		if st.verdict == pullTooLarge { // for what remained of it
			c.floor = max(st.bytes+1, c.floor)
		}
		c.took(st.messages, st.bytes)
		return
	}
	// Not known: it was void when all that was asked for had come.
}

// barren follows pulls that end and bring nothing, one after the other. A server that is well keeps a request until it expires,
// or the messages are too large for a few; one that is broken, or hostile, may end each at once, and would be asked again as fast
// as it answers.
type barren struct {
	n     int
	wave  uint64 // requests up to this one are counted
	last  int64
	until int64 // no pull before
}

const (
	barrenFree  = 4 // such waves of requests are followed by others at once
	barrenFirst = 10 * time.Millisecond
	barrenMost  = time.Second
	// barrenFor is for how long they count. Requests that expire are further apart.
	barrenFor = 3 * barrenMost
)

// ended counts that request id is over, of those up to lastID. All that were under way together count once. It says how long to
// wait.
func (b *barren) ended(id, lastID uint64, now int64) time.Duration {
	if now-b.last > int64(barrenFor) {
		b.n = 0
	}
	b.last = now
	if id > b.wave {
		b.n++
		b.wave = lastID
	}
	if b.n <= barrenFree {
		return 0
	}
	d := min(barrenFirst<<min(b.n-barrenFree-1, 10), barrenMost)
	b.until = max(b.until, now+int64(d))
	return d
}

// over says that a message came, or that the connection is another.
func (b *barren) over() { b.n, b.until = 0, 0 }

// A verdict is what a pull's answer without a message asks us to do.
type verdict int

const (
	pullAlive     verdict = iota // a heartbeat
	pullEnded                    // this request is over
	pullTooLarge                 // the next message does not fit into the bytes asked for
	pullRefused                  // a limit of the consumer or the server: ask less, and later
	pullReset                    // all requests are void: ask anew
	pullAbsent                   // nobody answers: look whether the consumer still exists
	pullDeleted                  // the consumer is gone
	pullUnpinned                 // another process is pinned
	pullGroupless                // the consumer has got a priority group, and this request named none, or another
	pullBroken                   // asking again is of no use
)

// A status is the answer to a pull that carries no message.
type status struct {
	verdict  verdict
	text     string
	counted  bool // messages and bytes were given
	messages int
	bytes    int64
}

// readStatus reads a status message's headers. Codes and texts are nats-server's (consumer.go), found the same in 2.10 to 2.15.
func readStatus(h nats.Header) status {
	code, text := h.Get("Status"), h.Get("Description")
	st := status{verdict: pullVerdict(code, text), text: strings.TrimSpace(code + " " + text)}
	m, merr := strconv.Atoi(h.Get("Nats-Pending-Messages"))
	b, berr := strconv.ParseInt(h.Get("Nats-Pending-Bytes"), 10, 64)
	if merr == nil && berr == nil && m >= 0 && b >= 0 {
		st.counted, st.messages, st.bytes = true, m, b
	}
	return st
}

func pullVerdict(code, text string) verdict {
	switch code {
	case "100":
		return pullAlive
	case "404", "408":
		return pullEnded
	case "503":
		return pullAbsent
	case "409":
		return conflict(strings.ToLower(text))
	case "423":
		return pullUnpinned
	case "400":
		if text := strings.ToLower(text); strings.Contains(text, "priority group missing") ||
			strings.Contains(text, "invalid priority group") {
			return pullGroupless
		}
		return pullBroken
	case "412":
		return pullBroken
	}
	return pullRefused
}

func conflict(text string) verdict {
	for _, c := range []struct {
		part string
		v    verdict
	}{
		{"consumer deleted", pullDeleted},
		{"leadership change", pullReset},
		{"server shutdown", pullReset},
		{"message size exceeds maxbytes", pullTooLarge},
		{"batch completed", pullEnded},
		{"push based", pullBroken},
	} {
		if strings.Contains(text, c.part) {
			return c.v
		}
	}
	return pullRefused // Exceeded MaxWaiting, MaxRequestBatch, …
}

// body is the request as the server reads it. group and id are empty where there are none.
func (r request) body(expires, heartbeat time.Duration, group, id string) []byte {
	b := append(make([]byte, 0, 160), `{"batch":`...)
	b = strconv.AppendInt(b, int64(r.batch), 10)
	if r.bytes > 0 {
		b = append(b, `,"max_bytes":`...)
		b = strconv.AppendInt(b, r.bytes, 10)
	}
	b = append(b, `,"expires":`...)
	b = strconv.AppendInt(b, int64(expires), 10)
	if heartbeat > 0 {
		b = append(b, `,"idle_heartbeat":`...)
		b = strconv.AppendInt(b, int64(heartbeat), 10)
	}
	if group != "" {
		b = append(append(append(b, `,"group":"`...), group...), '"')
	}
	if id != "" {
		b = append(append(append(b, `,"id":"`...), id...), '"')
	}
	return append(b, '}')
}
