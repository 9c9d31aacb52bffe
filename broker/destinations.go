package broker

import "context"

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
