package broker

import (
	"errors"
	"fmt"
	"strings"
)

// ErrReserved says that a destination is the broker's own: what is published there is a command, or an answer that somebody waits
// for.
var ErrReserved = errors.New("broker: the destination is the broker's own")

// reserved begin the names that brokers keep for themselves, and why nothing is published there.
var reserved = []struct{ prefix, why string }{
	{"$", "NATS takes what is published there as a command"}, // $JS.API.STREAM.DELETE.ORDERS deletes a stream
	{"_INBOX.", "NATS delivers answers there"},
	{"_R_.", "NATS delivers answers there"},
	{"_GR_.", "NATS delivers answers there"},
	{"__", "Kafka keeps its own state there"}, // __consumer_offsets, __transaction_state
}

// CheckDestination returns an ErrReserved where a topic or subject is the broker's own, and nil for any other. The rule is one
// for all brokers, so that a name means the same wherever it is written. Ask it wherever something is published to a name that
// came from outside: a header, a template, a file. A Publisher asks it for each message, and refuses (ErrRefused).
func CheckDestination(topic string) error {
	for _, r := range reserved {
		if strings.HasPrefix(topic, r.prefix) {
			return fmt.Errorf("%w: %q begins with %s: %s", ErrReserved, topic, r.prefix, r.why)
		}
	}
	return nil
}
