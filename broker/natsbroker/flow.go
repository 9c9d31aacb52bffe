package natsbroker

import "github.com/longshoremq/longshore/broker"

// flow is whether messages come in and go out. Not safe for concurrent use.
type flow struct {
	stopped bool
	paused  bool
	closing bool  // Close has begun
	fatal   error // pulling has ended for good
}

// err is what Receive returns; nil while there may be messages.
func (f *flow) err() error {
	if f.stopped {
		return broker.ErrClosed
	}
	return f.fatal
}

// ends says whether nothing will be handed out any more.
func (f *flow) ends() bool { return f.stopped || f.closing || f.fatal != nil }

// givesBack says whether what is not handed out goes back.
func (f *flow) givesBack() bool { return f.stopped || f.paused || f.fatal != nil }
