package admin

import "time"

// A Target is what the server shows and controls: a *consumer.Consumer. Its methods are called by several goroutines at once and do not block.
type Target interface {
	Prober
	Controller
}

// A Prober knows how it is.
type Prober interface {
	// Health returns nil, or what is wrong: nothing handled for noProgress although there is work, too many stuck handlers. 0 skips the
	// first.
	Health(noProgress time.Duration) error
	// Ready says whether it runs and has contact with its broker.
	Ready() bool
}

// A Controller can be changed while it runs.
type Controller interface {
	Pause() error
	Resume() error
	// SetLimits sets the least and the most workers, or says why not.
	SetLimits(minimum, maximum int) error
}
