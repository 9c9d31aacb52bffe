package natsbroker

import (
	"context"
	"fmt"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// pinner keeps the pin, gathers what is missing after it was got, and ends the session when it is lost (pin.go).
type pinner struct {
	side     pinSide
	events   *kit.EventQueue
	link     *link
	consumer *remoteConsumer
	look     kit.Bell
	pull     kit.Bell      // there may be something to ask for
	idle     time.Duration // how often to look where there is nothing to do
	silent   int           // questions about the stream without an answer, one after the other
}

// run does what there is to do until ctx ends.
func (p *pinner) run(ctx context.Context) {
	for wait := time.Duration(0); ; wait = p.tend(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-p.look:
		case <-time.After(wait):
		}
	}
}

// tend does one thing, and returns after how long to look again.
func (p *pinner) tend(ctx context.Context) time.Duration {
	ses, action, wait := p.side.step(p.idle)
	switch action {
	case pinEnd:
		p.end(ses)
	case pinFree:
		p.unpin(ctx, ses)
	case pinRenew:
		p.renew(ctx, ses)
	case pinGather:
		p.gather(ctx, ses)
	case pinLearn:
		p.learn(ctx, ses)
	}
	return wait
}

// end ends a session and begins another, which stands by. What is still out comes again when its handler has returned, or its ack
// wait is over.
func (p *pinner) end(ses *session) {
	cause := p.side.fence(ses)
	if cause == nil {
		return
	}
	ses.keeper.End(cause)
	if ses.assigned {
		p.events.Say(broker.Event{Kind: broker.Ended, Claim: ses.claim, Err: cause})
	}
	p.side.follow(ses).drain()
	p.pull.Ring()
}

// renew tells the server that we are here, and learns whether we are still pinned.
func (p *pinner) renew(ctx context.Context, ses *session) {
	l := p.side.renew(ses)
	if !p.link.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.term/2)
	defer cancel()
	m, err := p.consumer.request(ctx, "MSG.NEXT", renewal(l.group, l.id))
	if err != nil {
		return // it shows by what was not confirmed
	}
	p.side.renewed(ses, l, readStatus(m.Header).verdict)
}

// gather looks what is missing.
func (p *pinner) gather(ctx context.Context, ses *session) {
	p.events.Tell() // the claim is known before anything of it is handed out
	if !p.link.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.side.term(ses)/2)
	defer cancel()
	mark := p.side.mark(ses)
	info, err := p.consumer.info(ctx)
	if err != nil {
		return
	}
	gone, ok := removed{}, true
	if p.side.complete(ses, info) { // asked after the consumer: what goes in between is looked for once more
		gone, ok = p.removed(ctx)
	}
	if ok {
		p.side.gathered(ses, info, gone, mark)
	}
}

// removed asks the stream what it has let go of. ok is false where it does not answer: what is here would be counted for what is
// missing. So it is asked again, unless the server says that it may not be, and a few times at most.
func (p *pinner) removed(ctx context.Context) (gone removed, ok bool) {
	asked := time.Now()
	gone, err := p.consumer.removed(ctx)
	p.silent++
	if err != nil && p.silent < mostSilent && !p.link.deniedSince(asked) {
		return gone, false
	}
	p.silent = 0
	return gone, true
}

// learn asks for the id of our pin, where it came with headers that cannot be read.
func (p *pinner) learn(ctx context.Context, ses *session) {
	if !p.link.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.side.term(ses)/2)
	defer cancel()
	q := p.side.question(ses)
	if info, err := p.consumer.info(ctx); err == nil {
		p.side.learned(ses, q, info)
	}
}

// unpin lets another process go on, at Stop and Pause when nothing is out any more, and at Close. It does so only while the pin
// is ours for certain, or it would take it from another. Where it is not allowed, the pin goes by its timeout.
func (p *pinner) unpin(ctx context.Context, ses *session) {
	l := p.side.free(ses)
	if !l.ours || !p.link.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	p.let(ctx, l.group)
}

// keepsYoung is for how long a server that has leaf nodes or gateways keeps a request to whose inbox nobody listens: word of who
// does may be on its way from there (defaultGatewayRecentSubExpiration of nats-server 2.15). And a moment, for it counts from the
// arrival of the request.
const keepsYoung = 2*time.Second + 250*time.Millisecond

// outwait is for Close while we stand by, and still listen: it waits until the server would forget our request. Whether it is one
// that forgets it at once, it does not tell. It takes half of the time that there is for Close at most.
func (p *pinner) outwait(ctx context.Context) {
	d := p.side.young()
	if end, ok := ctx.Deadline(); ok && time.Until(end) < 2*d {
		return
	}
	if d > 0 && p.link.connected() {
		sleep(ctx, d)
	}
}

// release is for Close while we stand by: it has the server forget our request (puller.forget), and lets another process go on
// where that was pinned just before.
func (p *pinner) release(ctx context.Context) {
	if !p.link.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	info, err := p.consumer.info(ctx)
	if err == nil && p.side.isOurs(pinnedNow(info)) {
		p.let(ctx, pinned(info.Config))
	}
}

// let lets another process go on.
func (p *pinner) let(ctx context.Context, group string) {
	_, _ = p.consumer.request(ctx, "UNPIN", fmt.Appendf(nil, `{"group":%q}`, group))
}
