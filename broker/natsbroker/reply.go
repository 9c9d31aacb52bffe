package natsbroker

import "strings"

// A delivery is what the reply subject of a JetStream message says about it.
type delivery struct {
	stream    uint64 // the message's sequence in the stream
	consumer  uint64 // the delivery's sequence in the consumer, one higher for each delivery to anyone
	delivered uint64 // how often it was delivered, 1 at first
	pending   uint64 // how many messages were not yet delivered to anyone when this one was
	nanos     int64  // when the stream stored it
}

const ackPrefix = "$JS.ACK."

// parseReply reads a reply subject without allocating. Two forms exist:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<nanos>.<pending>
//	$JS.ACK.<domain>.<account hash>.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<nanos>.<pending>[.<more>…]
//
// The second is of NATS ADR-15; it may grow more tokens at its end.
func parseReply(reply string) (delivery, bool) {
	if !strings.HasPrefix(reply, ackPrefix) {
		return delivery{}, false
	}
	rest := reply[len(ackPrefix):]
	skip := 2
	switch dots := strings.Count(rest, "."); {
	case dots == 6:
	case dots >= 8:
		skip = 4
	default:
		return delivery{}, false
	}
	for range skip {
		_, rest, _ = strings.Cut(rest, ".")
	}
	var n [5]uint64
	for i := range n {
		var token string
		token, rest, _ = strings.Cut(rest, ".")
		v, ok := parseDigits(token)
		if !ok {
			return delivery{}, false
		}
		n[i] = v
	}
	d := delivery{delivered: n[0], stream: n[1], consumer: n[2], nanos: int64(n[3]), pending: n[4]}
	return d, d.delivered > 0 && d.stream > 0 && d.consumer > 0 && d.nanos >= 0
}

// parseDigits is strconv.ParseUint for plain digits that fit an int64, without its allocation for the error.
func parseDigits(s string) (uint64, bool) {
	if len(s) == 0 || len(s) > 19 {
		return 0, false
	}
	var n uint64
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 {
			return 0, false
		}
		n = n*10 + uint64(c)
	}
	return n, n <= 1<<63-1
}
