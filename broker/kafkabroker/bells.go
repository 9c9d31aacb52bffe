package kafkabroker

// Bells wake whoever waits for something to have changed. To ring one never blocks, and what was rung while nobody listened is
// heard later.
type bells struct {
	wake  chan struct{} // Receive
	kick  chan struct{} // the loop
	flush chan struct{} // the committer
	find  chan struct{} // the poller: where something is has to be looked for
	stir  chan struct{} // the poller: what rested does not any more
}

func newBells() *bells {
	bell := func() chan struct{} { return make(chan struct{}, 1) }
	return &bells{wake: bell(), kick: bell(), flush: bell(), find: bell(), stir: bell()}
}

// look has Receive and the loop look again.
func (b *bells) look() {
	signal(b.wake)
	signal(b.kick)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
