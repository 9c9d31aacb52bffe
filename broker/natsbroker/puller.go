package natsbroker

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// puller keeps requests with the server: for freed budget, and anew when they are void.
type puller struct {
	side      pullSide
	clock     clock
	events    *kit.EventQueue
	link      *link
	outbox    *outbox
	leases    *leaseKeeper
	consumer  *remoteConsumer
	look      kit.Bell
	gone      kit.Bell // perhaps the consumer is
	heartbeat time.Duration

	operations *kit.Operations
}

// pullTimes are how long the server keeps a request that it cannot answer, and how often it says that it does. The server wants
// room for two heartbeats; a consumer may allow less than 30 s.
func pullTimes(heartbeat, most time.Duration) (expires, beat time.Duration) {
	expires = max(30*time.Second, 3*heartbeat)
	if most > 0 {
		expires = min(expires, most)
	}
	return expires, min(heartbeat, expires/3)
}

// run does what there is to do until ctx ends.
func (p *puller) run(ctx context.Context) {
	t := time.NewTicker(p.heartbeat / 4)
	defer t.Stop()
	var q quiet
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.look:
		case <-t.C:
			p.listen(&q)
		}
		step := p.side.step()
		step.old.drain()
		if step.old.mayBePinned() {
			p.forget(ctx)
		}
		if step.idle {
			p.resend()
			continue
		}
		if step.revive && !p.renew(ctx, &q) {
			p.outbox.rouse()
			continue
		}
		p.pull()
	}
}

// listen notices requests that the server does not know any more, and a connection on which nothing comes back.
func (p *puller) listen(q *quiet) {
	patience := 2 * int64(p.heartbeat)
	q.read(p.link.reads(), p.clock.now())
	heard, v, since := p.side.listen(q, patience)
	if err := v.err(p.consumer.name(), since, heard.crowded); err != nil {
		p.events.Lost(p.link.denied(err, time.Now().Add(-since-p.heartbeat))) // it was said when we subscribed, before we asked
	}
	if v == silenceOver {
		p.events.Found(p.clock.at(q.anew))
	}
	if nc := p.link.conn(); nc != nil && nc.IsConnected() && q.halfOpen(heard, patience) {
		_ = nc.ForceReconnect()
	}
}

// resend sends again the acks that may be lost with an earlier connection. Who pulls nothing does not renew anything else.
func (p *puller) resend() {
	if nc := p.link.conn(); nc != nil && nc.IsConnected() {
		p.outbox.reconnected(epochOf(nc))
	}
}

// renew makes a round trip, sends again the acks that may be lost, and makes a new inbox. Over a new connection it waits until
// the consumer was found to be the same: how far it had delivered then is of before we pull.
func (p *puller) renew(ctx context.Context, q *quiet) bool {
	nc := p.link.conn()
	if nc == nil || !nc.IsConnected() {
		return false
	}
	p.side.reviving()
	p.outbox.reconnected(epochOf(nc))
	if !p.outbox.isSure(epochOf(nc)) || !p.leases.contact(ctx) || !p.enter(ctx, nc) {
		p.side.revive()
		return false
	}
	if q.revived(p.side.heard(), p.clock.now()) {
		p.events.Found(time.Now())
	}
	return true
}

// enter has pulls answered at a new inbox.
func (p *puller) enter(ctx context.Context, nc *nats.Conn) bool {
	b := &inbox{ses: p.side.session(), prefix: nc.NewInbox() + ".", nc: nc}
	sub, err := nc.Subscribe(b.prefix+"*", func(m *nats.Msg) { p.arrived(b, m) })
	if err != nil {
		return false
	}
	b.sub = sub
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		b.drain()
		return false
	}
	old, ok := p.side.enter(b)
	old.drain()
	if old.mayBePinned() {
		p.forget(ctx)
	}
	return ok
}

// forget has the server forget requests of when we stood by, whose inbox was drained. By itself it does so later, and until then
// pins one of them for nobody: it takes the first of the group for the next message, and only then looks whether somebody still
// waits there (nextWaiting of nats-server 2.15). A consumer's info makes it look at once.
func (p *puller) forget(ctx context.Context) {
	if !p.link.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, _ = p.consumer.info(ctx) // when it fails, the pin that is for nobody goes by its timeout
}

// pull sends what the credit allows.
func (p *puller) pull() {
	for {
		r, ok := p.side.next()
		if !ok {
			return
		}
		expires, beat := pullTimes(p.heartbeat, r.maxExpires)
		reply := r.to.prefix + strconv.FormatUint(r.id, 10)
		if err := p.consumer.publish("MSG.NEXT", reply, r.body(expires, beat, r.group, r.pin)); err != nil {
			p.link.unsent(err)
			p.side.revive()
			return
		}
	}
}

// arrived is called by nats.go for each answer to a pull, by one goroutine for each inbox.
func (p *puller) arrived(b *inbox, m *nats.Msg) {
	if d, ok := parseReply(m.Reply); ok {
		p.tell(p.side.delivered(b, m, d))
		return
	}
	rest, mine := strings.CutPrefix(m.Subject, b.prefix)
	if !mine {
		return // nothing that a JetStream consumer sends
	}
	id, err := strconv.ParseUint(rest, 10, 64)
	if err != nil {
		return
	}
	st := readStatus(m.Header)
	current, ended := p.side.answered(b, id, st)
	p.tell(ended)
	if current {
		p.react(st)
	}
}

// tell tells of requests that are over.
func (p *puller) tell(ended []endedPull) {
	for _, e := range ended {
		p.operations.Tell(broker.Fetch, p.clock.at(e.sent), e.err)
	}
}

// react does what an answer without a message asks for.
func (p *puller) react(st status) {
	switch st.verdict {
	case pullAlive:
		return
	case pullReset:
		p.side.revive()
	case pullRefused:
		p.holdOff(time.Second)
		if n := p.side.refused(); n > 0 {
			p.events.Say(broker.Event{Kind: broker.Warning,
				Err: fmt.Errorf("natsbroker: consumer %s refused pulls: %d, the last by %q", p.consumer.name(), n, st.text)})
		}
	case pullAbsent:
		p.holdOff(250 * time.Millisecond)
		p.side.revive()
		p.gone.Ring()
	case pullDeleted:
		p.gone.Ring()
	case pullGroupless:
		p.holdOff(250 * time.Millisecond)
		p.gone.Ring()
	case pullBroken:
		p.side.fail(fmt.Errorf("natsbroker: consumer %s refused a pull for good: %s", p.consumer.name(), st.text))
	}
	p.look.Ring()
}

// holdOff lets no pull be sent for a while.
func (p *puller) holdOff(d time.Duration) {
	p.side.holdOff(d)
	time.AfterFunc(d, p.look.Ring)
}
