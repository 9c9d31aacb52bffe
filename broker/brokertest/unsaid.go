package brokertest

// closeUnsaid proves that acks which said nil, and which Close could not bring to the broker before its ctx ended, are reported
// as Unconfirmed: nobody tries them again. What said nil and was not reported may not come again (see promises).
func closeUnsaid(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	a := w.join()
	w.produce(0, 5)
	ms := a.take(5)
	w.down()
	_ = a.ack(ms...)
	ctx, cancel := within(w.lease / 2)
	defer cancel()
	_ = a.closeCtx(ctx)
	w.up()
	b := w.join()
	b.mustAck(b.take(5, "of whom no settle reached the broker")...)
	w.settled()
}
