package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// watcher finds the consumer, or creates it, and begins a session on it. It asks for the consumer's info: for lag, and because a
// deleted or recreated consumer says nothing by itself while nothing is asked of it.
type watcher struct {
	cfg      *Config
	side     watchSide
	events   *kit.EventQueue
	link     *link
	consumer *remoteConsumer
	outbox   *outbox
	now      kit.Bell

	opts broker.Options // set by open
	told []string       // what differs from the configuration, as of the last look
	away bool           // the last look had no answer
	held string         // until when the consumer is paused at the server, as it was told; empty: it is not
}

// open finds the consumer for the first time.
func (w *watcher) open(ctx context.Context, o broker.Options) (durable, error) {
	w.opts = o
	return w.find(ctx, w.cfg.Missing == "wait")
}

// run looks until ctx ends.
func (w *watcher) run(ctx context.Context) {
	t := time.NewTicker(w.cfg.Poll)
	defer t.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-w.now:
		}
		if w.link.connected() {
			w.look(ctx, n%5 == 0)
		}
	}
}

// look looks once; stream: at the stream, too.
func (w *watcher) look(ctx context.Context, stream bool) {
	now, ok := w.side.look()
	if !ok {
		return
	}
	asked := time.Now()
	info, err := w.consumer.sureInfo(ctx)
	switch {
	case ctx.Err() != nil:
	case missing(err):
		w.replace(ctx, now.ses, fmt.Errorf("natsbroker: %s was deleted: %w", w.which(), err))
	case err != nil: // nobody may be there though the connection is
		w.away = true
		w.side.doubt()
		w.events.Unanswered(asked, fmt.Errorf("natsbroker: looking at %s: %w", w.which(), w.link.why(err, asked)))
		w.link.unheard(asked)
	case !w.side.same(now.created, info, epochOf(w.link.conn()).server):
		w.replace(ctx, now.ses, fmt.Errorf("natsbroker: %s was deleted and made anew", w.which()))
	default:
		w.link.unanswered.over()
		if w.away || now.paused { // a paused source pulls nothing that would show it
			w.away = false
			w.events.Found(asked)
		}
		w.side.learn(now, info)
		if err := unfit(info.Config, w.opts.Ordered); err != nil {
			w.side.fail(fmt.Errorf("natsbroker: %s: %w", w.which(), err))
			return
		}
		w.tell(w.cfg.consumerDiffers(info.Config, w.opts.Ordered))
		w.tellPause(info)
		w.tellDeserted()
		if stream && now.stream {
			w.checkStream(ctx, now.ses, info)
		}
	}
}

// checkStream looks whether the stream was told to replace messages, and for a consumer that stands behind the end of its stream,
// as after a loss of power: it waits for ever, and looks drained.
func (w *watcher) checkStream(ctx context.Context, ses *session, info *jetstream.ConsumerInfo) {
	st, err := w.consumer.streamInfo(ctx)
	if err != nil {
		return
	}
	w.side.adoptStream(ses, st.Config)
	// The stream is asked after the consumer, so a stream that grows is never behind.
	if last := st.State.LastSeq; info.Delivered.Stream > last {
		w.warn(fmt.Errorf("natsbroker: consumer %s stands at %d, after the end of stream %s at %d: "+
			"what is published up to there is not handed out. Restart the server, which sets it back, or reset the consumer",
			w.cfg.Consumer, info.Delivered.Stream, w.cfg.Stream, last))
	}
}

// tellPause tells that somebody has paused the consumer at the server, and that this is over: it looks as one that hangs.
func (w *watcher) tellPause(info *jetstream.ConsumerInfo) {
	held := w.held
	if w.held = ""; info.Paused {
		w.held = "until it is resumed"
		if until := info.Config.PauseUntil; until != nil {
			w.held = "until " + until.UTC().Format(time.RFC3339)
		}
	}
	switch {
	case w.held == held:
	case w.held != "":
		w.warn(fmt.Errorf("natsbroker: %s is paused at the server %s, and delivers nothing", w.which(), w.held))
	default:
		w.events.Say(broker.Event{Kind: broker.Notice, Err: fmt.Errorf("natsbroker: %s is not paused any more", w.which())})
	}
}

// tellDeserted tells that what is sent to the consumer, which is there, finds nobody: all else looks well then.
func (w *watcher) tellDeserted() {
	least := 2 * w.cfg.Heartbeat
	const why = "is that subject exported by the stream's account, and imported by ours? Where both are one, start the server again"
	if w.side.deserted(least) {
		w.warn(fmt.Errorf("natsbroker: %s is there, but nobody takes pulls at %s, so nothing comes; %s", w.which(),
			w.cfg.apiSubject("MSG.NEXT"), why))
	}
	if w.outbox.deserted(least) {
		w.warn(fmt.Errorf("natsbroker: %s is there, but nobody takes acks at %s>, so all that is handled comes again; %s", w.which(),
			ackPrefix, why))
	}
}

// tell tells what differs from the configuration, and did not at the last look.
func (w *watcher) tell(differs []error) {
	last := w.told
	w.told = nil
	for _, err := range differs {
		if !slices.Contains(last, err.Error()) {
			w.warn(err)
		}
		w.told = append(w.told, err.Error())
	}
}

// find ensures stream and consumer, as long as what stands in the way may pass; with await, a stream that is not there may come.
func (w *watcher) find(ctx context.Context, await bool) (durable, error) {
	from := w.side.from()
	running := !w.side.created().IsZero()
	met := running // JetStream, which is there but for a while
	for attempt := 1; ; attempt++ {
		asked, began := w.outbox.ask(epochOf(w.link.conn())), time.Now()
		d, err := w.cfg.ensure(ctx, asked.over.conn, from, w.opts.Ordered)
		if err == nil {
			d.asked = asked
			return d, nil
		}
		if from.without(err, w.link.deniedSince(began)) {
			continue
		}
		err = w.link.why(w.cfg.redact(err), began)
		// No responder where JetStream should be: it is not enabled, or not yet.
		disabled := errors.Is(err, nats.ErrNoResponders) && attempt > 5 && !met
		if disabled {
			err = fmt.Errorf("JetStream does not answer; is it enabled on the server and for the account? %w", err)
		}
		gone := errors.Is(err, jetstream.ErrStreamNotFound)
		passes := passing(err) || running && mayPass(err)
		if ctx.Err() == nil && (!passes || disabled) && !(gone && await) {
			return d, err
		}
		if gone {
			met, err = true, fmt.Errorf("%w: waiting for it", err)
		}
		switch {
		case ctx.Err() != nil: // who ended it knows
		case !gone || from.started: // a source that was up is down
			w.events.Lost(err)
		default:
			w.events.FoundAgain(began) // it is the stream alone that is waited for
			if from.missed.IsZero() {
				from.missed = began
				w.warn(err)
			}
		}
		if !sleep(ctx, w.cfg.pause(attempt)) {
			return d, fmt.Errorf("natsbroker: %w; last: %w", context.Cause(ctx), err)
		}
	}
}

// begin starts a session on a consumer: a new claim.
func (w *watcher) begin(d durable) {
	w.told = nil
	w.tell(d.warnings)
	w.tellPause(d.consumer)
	if d.made != "" {
		w.events.Say(broker.Event{Kind: broker.Notice,
			Err: fmt.Errorf("natsbroker: %s was not there and was made: begins at %s", w.which(), d.made)})
	}
	cc := d.consumer.Config
	topic := ""
	if f := filterOf(cc); len(f) == 1 {
		topic = f[0]
	}
	ses := newSession(w.side.holdings, topic, w.opts.Budget.Messages)
	ses.at.exact, ses.at.filter, ses.at.holes = d.exact(), filterOf(cc), d.holes()
	ses.at.polled(point{d.consumer.Delivered.Consumer, d.consumer.Delivered.Stream})
	var skipped gap
	var gone bool
	if d.stream != nil { // it was asked before the consumer, so what it had lost then is lost
		skipped, gone = ses.at.begin(d.consumer.Delivered.Stream, d.stream.State.FirstSeq)
	}
	ses.highest = d.consumer.Delivered.Stream
	if cc.MaxAckPending > 0 && cc.MaxAckPending < w.opts.Budget.Messages {
		w.warn(fmt.Errorf("natsbroker: %s: max_ack_pending is %d for all processes, and this one's budget is %d messages",
			w.which(), cc.MaxAckPending, w.opts.Budget.Messages))
	}
	if w.opts.Ordered {
		ses.pin.group = pinned(cc)
	}
	var claim *broker.Claim
	if ses.pin.group == "" && !w.side.stopped() { // else nothing is handed out under it
		claim, ses.assigned = ses.claim, true
		w.events.Say(broker.Event{Kind: broker.Assigned, Claim: claim})
		w.events.Tell()
	}
	if gone {
		w.events.Say(broker.Event{Kind: broker.Gap, Claim: claim, From: int64(skipped.from), N: skipped.n})
	}
	w.side.begin(ses, d)
}

// replace ends a session whose consumer is gone, and by policy begins another.
func (w *watcher) replace(ctx context.Context, ses *session, cause error) {
	fatal := cause
	if w.cfg.Recreate {
		fatal = nil
	}
	old, ok := w.side.fence(ses, epochOf(w.link.conn()), fatal)
	if !ok {
		return
	}
	old.drain()
	ses.keeper.End(fmt.Errorf("%w: %w", broker.ErrLost, cause))
	if ses.assigned {
		w.events.Say(broker.Event{Kind: broker.Gap, Claim: ses.claim, N: -1, Err: cause})
		w.events.Say(broker.Event{Kind: broker.Ended, Claim: ses.claim, Err: ses.claim.Cause()})
	} else {
		w.events.Say(broker.Event{Kind: broker.Gap, N: -1, Err: cause})
	}
	if fatal != nil {
		return
	}
	d, err := w.find(ctx, w.cfg.Missing == "wait")
	switch {
	case ctx.Err() != nil:
	case err != nil:
		w.side.fail(fmt.Errorf("%w; going on: %w", cause, err))
	default:
		w.begin(d)
	}
}

// which is the consumer, for people.
func (w *watcher) which() string {
	return fmt.Sprintf("consumer %s of stream %s", w.cfg.Consumer, w.cfg.Stream)
}

func (w *watcher) warn(err error) { w.events.Say(broker.Event{Kind: broker.Warning, Err: err}) }
