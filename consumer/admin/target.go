package admin

import (
	"time"

	"github.com/longshoremq/longshore/consumer"
)

// A Target is what the server shows and controls: a *consumer.Consumer. Its methods are called by several goroutines at once and do not block.
type Target interface {
	Prober
	Controller
}

// A Prober knows how it is.
type Prober interface {
	// Health returns nil, or what is wrong that a restart would mend: see consumer.Consumer.Health. noProgress 0 skips a part of it.
	Health(noProgress time.Duration) error
	// Ready says whether it runs and has contact with its broker.
	Ready() bool
	// Stats are its figures.
	Stats() consumer.Stats
}

// A Controller can be changed while it runs.
type Controller interface {
	Pause() error
	Resume() error
	// SetLimits sets the least and the most workers, or says why not.
	SetLimits(minimum, maximum int) error
}
