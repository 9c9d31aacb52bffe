package replicas

import "time"

// A Reading is what the broker and the processes said at one moment, whole: where a part is unknown, there is no Reading.
type Reading struct {
	At    time.Time
	Parts []Part
	// Missing: there is no durable yet, and only a process can make it. Nobody can tell what would wait for it.
	Missing bool
	// Most is how many processes can have work at a time: partitions, or 1 with an order on JetStream. 0: no bound.
	Most int
	// Members are the processes; nil: they are not asked.
	Members *Members
}

// A Part is a partition of a topic, or a durable consumer.
type Part struct {
	Name string
	// Arrived counts what has to be handled, from any beginning. One that goes back was begun anew.
	Arrived int64
	// Backlog is how many of these are not finished.
	Backlog int64
	// Later: they wait in a retry topic for their time. They ask for a process to be there, and for no more of them.
	Later bool
	// Held: the broker hands out nothing of it, as of a durable that is paused at the server. No process can do any of it.
	Held bool
}

// Members are the processes of a consumer.
type Members struct {
	// There is how many there are; -1: unknown. Of these, some may not have told about themselves.
	There int
	Told  []Process
	// Silent says of one that is there why it tells nothing; empty: all have told, now or just before.
	Silent string
	// Without is how many answered that they do not have the consumer. They are not There.
	Without int
}

// A Process is what one tells of itself.
type Process struct {
	Name string
	// Workers is the most that it may have.
	Workers int
	// Runs counts messages that handlers returned from since its start, Work is the time of these.
	Runs int64
	Work time.Duration
	// Paused by its operator.
	Paused bool
	// Open: a circuit breaker of it is not closed. What its handlers call is out, and how long they take tells nothing.
	Open bool
	// Limited: most of what it has waits for a limit that processes share.
	Limited bool
}
