package brokertest

// closeUnsaid proves that acks which said nil, and which Close could not bring to the broker before its ctx ended, are reported
// as Unconfirmed: nobody tries them again. What said nil and was not reported may not come again (see promises).
func closeUnsaid(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	a := w.join()
	w.produce(0, 5)
	ms := a.take(5)
	w.sys.Down(w)
	_ = a.ack(ms...)
	ctx, cancel := within(w.lease / 2)
	defer cancel()
	if err := a.closeCtx(ctx); err == nil {
		w.Error("Close says nil, and could tell the broker nothing before its ctx ended")
	}
	w.sys.Up(w)
	b := w.join()
	b.mustAck(b.take(5, "of whom no settle reached the broker")...)
	w.settled()
}

// closeGivesBackLate proves that a process which is cut off while it closes gives nothing back after its lease has run out: by
// then somebody else has the messages, and a give-back would take them from there. Close tries for longer than a lease.
func closeGivesBackLate(w *world) {
	a, _ := w.cutOff(5)
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = a.closeCtx(ctx)
	}()
	b := w.process(budget(5, 1<<20)) // so what is taken from it does not come back to it
	b.open()
	b.receive()
	got := b.take(5, "of a process that is cut off while it closes")
	c := w.join()
	a.p.Heal()
	<-closed
	c.quiet(w.lease/2, "another process has it")
	b.mustAck(got...)
	w.settled()
}

// needsSharedLog is the reason against a case about messages that processes take from each other one by one.
func needsSharedLog(h *Harness) string {
	if !h.NoPartitions {
		return "Harness.NoPartitions is not set: a partition has one process, and a late settle of another one is refused"
	}
	return needsRedelivery(h)
}

func needsUnbound(h *Harness) string {
	if h.BoundToConnection {
		return "Harness.BoundToConnection: what was out comes again when its connection breaks"
	}
	return needsRedelivery(h)
}

func needsSharedLogAndUnbound(h *Harness) string {
	if reason := needsUnbound(h); reason != "" {
		return reason
	}
	return needsSharedLog(h)
}
