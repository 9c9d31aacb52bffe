package broker

import (
	"context"
	"time"
)

// Destinations is an ability of a Publisher, found by type assertion: it knows whether there is a place for what it would
// publish, before anything is lost in wait for it, and can make one. Safe for concurrent use. Each method connects when it is
// first used, and tries until ctx ends.
type Destinations interface {
	// Find returns nil where topic is there: a topic, or a stream that takes the subject. ErrNoTopic: it is not. Any other error:
	// nobody can tell now.
	Find(ctx context.Context, topic string) error
	// Create makes one that keeps its messages for ever: a topic of one partition, or a stream for the subject alone. nil where it
	// is there already. ErrReserved where the name is the broker's own.
	Create(ctx context.Context, topic string) error
}

// Retainer is an ability of a Publisher, found by type assertion of the Innermost one: it knows for how long a topic keeps what
// is published to it. Safe for concurrent use.
type Retainer interface {
	// Retains returns why a message that is published to topic may be gone before it was there for so long, whether it was read or
	// not: it is removed too soon, or for a newer one of its key. d is 0 where it does not matter for how long. nil: it is kept,
	// or nobody can tell now. It blocks until ctx ends at most.
	Retains(ctx context.Context, topic string, d time.Duration) error
}
