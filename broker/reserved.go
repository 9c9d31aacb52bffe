package broker

// Headers that longshore itself writes. Producers may forge them, so whoever reads one parses it strictly and ignores what is
// malformed.
const (
	// ReservedPrefix begins every header that longshore writes.
	ReservedPrefix = "Longshore-"

	// HeaderKey carries the key on brokers without keys (NATS).
	HeaderKey = "Longshore-Key"
	// HeaderID carries Outgoing.ID on brokers that have no place of their own for it.
	HeaderID = "Longshore-Id"

	// Of a dead letter: where the message came from,
	HeaderOriginalTopic     = "Longshore-Original-Topic"
	HeaderOriginalPartition = "Longshore-Original-Partition"
	HeaderOriginalOffset    = "Longshore-Original-Offset"
	HeaderOriginalID        = "Longshore-Original-Id"   // Message.Name, on brokers that name their messages so
	HeaderOriginalTime      = "Longshore-Original-Time" // RFC 3339 with nanoseconds
	// how it fared,
	HeaderAttempts     = "Longshore-Attempts"
	HeaderFirstFailure = "Longshore-First-Failure" // RFC 3339 with nanoseconds; as far as this process knows
	HeaderLastFailure  = "Longshore-Last-Failure"
	// and why.
	HeaderError      = "Longshore-Error"       // the error's text, at most 1 KiB
	HeaderErrorClass = "Longshore-Error-Class" // error, permanent, decode, oversize, timeout, panic, goexit, crash
	HeaderHandler    = "Longshore-Handler"

	// HeaderRetryAt is when a message of a retry topic is due, beside the headers of a dead letter. RFC 3339 with nanoseconds.
	HeaderRetryAt = "Longshore-Retry-At"

	// Of a message that was replayed from the dead letters: how often, so that it cannot go round for ever, and what became of it
	// each time before, a header each. They stay with it when it becomes a dead letter again.
	HeaderReplays = "Longshore-Replays"
	HeaderHistory = "Longshore-History"

	// HeaderTrace is the span in which a handler was last called with the message and failed, as a traceparent: written where the
	// consumer is traced. It is no letter's own: it stays with the message, so that the next call can be linked to it.
	HeaderTrace = "Longshore-Trace"
)

// IsLetterHeader says whether a header is of a dead letter's own, or of a message of a retry topic, and not of the message in it.
func IsLetterHeader(key string) bool {
	switch key {
	case HeaderOriginalTopic, HeaderOriginalPartition, HeaderOriginalOffset, HeaderOriginalID, HeaderOriginalTime, HeaderAttempts,
		HeaderFirstFailure,
		HeaderLastFailure, HeaderErrorClass, HeaderError, HeaderHandler, HeaderID, HeaderRetryAt:
		return true
	}
	return false
}
