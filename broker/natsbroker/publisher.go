package natsbroker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
	"github.com/longshoremq/longshore/internal/conftag"
)

// PublisherConfig is a publisher to JetStream.
type PublisherConfig struct {
	Connection

	// Domain is the JetStream domain that the streams are in, where it is not the connection's own: there they are looked for, and
	// created. Defaults to none.
	Domain string `want:"some"`
	// AckTimeout is how long to wait for the confirmation of one message; after it the message is perhaps stored. Defaults to 5 s.
	AckTimeout time.Duration `want:">0"`
}

// A Publisher publishes to the JetStream streams that take a subject, and waits for their confirmation. It implements
// broker.Publisher. The subject is Outgoing.Topic. The key goes into the header Longshore-Key, or in base64 into
// Longshore-Key-Base64 where a NATS header cannot carry it. Outgoing.ID becomes Nats-Msg-Id, by which the stream drops
// repetitions within its duplicate window (2 minutes unless configured otherwise).
//
// Headers that begin with Nats- are commands to the server, and one that was copied from a message would be obeyed: Nats-Rollup
// purges the stream of the dead letters. So they are stored as Longshore-Nats-….
//
// Refused for good (broker.ErrRefused): too large, no stream takes the subject, not authorized, no valid subject, and a header
// that NATS cannot carry unchanged; and, as broker.ErrReserved, a subject of the server's own (broker.CheckDestination). NATS
// cannot tell a nil value from an empty one.
type Publisher struct {
	cfg  PublisherConfig
	link *link

	life *kit.Publishing

	connecting chan struct{} // of capacity 1: who holds it connects
	answers    confirmations

	mu     sync.Mutex
	denied map[string]chan struct{} // by subject under way; closed when the server denies it
	sought map[string]bool          // subjects that no stream was found for; true: one has confirmed a message since
}

var _ broker.Publisher = (*Publisher)(nil)

// NewPublisher checks cfg. It connects at the first Publish.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg.Connection = cfg.Connection.withDefaults()
	orDuration(&cfg.AckTimeout, 5*time.Second)
	f := findings()
	cfg.Connection.validate(f)
	validateDomain(f, cfg.Domain)
	conftag.Check(f, cfg)
	if err := f.Err(); err != nil {
		return nil, err
	}
	p := &Publisher{cfg: cfg, life: kit.NewPublishing("natsbroker"), connecting: make(chan struct{}, 1),
		denied: map[string]chan struct{}{}, sought: map[string]bool{}}
	p.link = newLink(cfg.Connection, hooks{lost: p.answers.lost, back: func() {}, problem: p.problem})
	p.link.unanswered.least = 2 * cfg.AckTimeout
	return p, nil
}

// window is how many messages of one call may wait for their confirmation at a time.
const window = 256

// Publish implements broker.Publisher.
func (p *Publisher) Publish(ctx context.Context, ms []broker.Outgoing) error {
	return p.life.Do(ctx, func(ctx context.Context) error { return p.publish(ctx, ms) })
}

func (p *Publisher) publish(ctx context.Context, ms []broker.Outgoing) error {
	if err := p.connect(ctx); err != nil {
		return err
	}
	b := batch{p: p, errs: make([]error, len(ms))}
	defer b.leave()
	for i := range ms {
		if b.first+window <= i {
			if err := b.wait(ctx); err != nil {
				return err
			}
		}
		b.send(ms[i])
	}
	for b.first < len(ms) {
		if err := b.wait(ctx); err != nil {
			return err
		}
	}
	for _, err := range b.errs {
		if err != nil {
			return &broker.PublishError{Errs: b.errs}
		}
	}
	return nil
}

// connect makes sure that there is a living connection; it waits for one until ctx ends.
func (p *Publisher) connect(ctx context.Context) error {
	select {
	case p.connecting <- struct{}{}:
		defer func() { <-p.connecting }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.link.conn() == nil {
		if err := p.link.open(ctx); err != nil {
			return fmt.Errorf("natsbroker: publishing: %w", err)
		}
	}
	for !p.link.connected() {
		if !sleep(ctx, 10*time.Millisecond) {
			return fmt.Errorf("natsbroker: publishing: %w", p.link.away(context.Cause(ctx)))
		}
	}
	if err := p.answers.use(p.link.conn()); err != nil {
		return fmt.Errorf("natsbroker: publishing: %w", err)
	}
	return nil
}

// batch is one call's messages on their way.
type batch struct {
	p     *Publisher
	errs  []error
	sent  []inflight
	first int              // the oldest that is not confirmed
	away  map[string]error // what noStream said of a subject: asked for each message, 500 of them could wait for 500 answers
}

type inflight struct {
	subject string
	id      uint64
	at      time.Time
	answer  chan error // nil: not sent
	denied  chan struct{}
}

func (b *batch) send(o broker.Outgoing) {
	i := len(b.sent)
	b.sent = append(b.sent, inflight{subject: o.Topic})
	m, err := b.p.encode(o)
	if err != nil {
		b.errs[i] = fmt.Errorf("natsbroker: publishing to %q: %w: %w", o.Topic, broker.ErrRefused, err)
		return
	}
	denied := b.p.watchDenied(o.Topic)
	id, answer, err := b.p.answers.publish(m)
	if err != nil {
		b.p.link.unsent(err)
		b.errs[i] = b.p.publishErr(o.Topic, err)
		return
	}
	b.sent[i] = inflight{o.Topic, id, time.Now(), answer, denied}
}

// wait waits for the oldest message. Its error is ctx's.
func (b *batch) wait(ctx context.Context) error {
	i, f := b.first, b.sent[b.first]
	b.first++
	if f.answer == nil {
		return nil
	}
	select {
	case err := <-f.answer: // most have come by the time it is their turn: they need no timer
		b.answered(ctx, i, err)
		return nil
	default:
	}
	late := time.NewTimer(b.p.cfg.AckTimeout - time.Since(f.at))
	defer late.Stop()
	select {
	case err := <-f.answer:
		b.answered(ctx, i, err)
	case <-f.denied:
		b.errs[i] = fmt.Errorf("natsbroker: publishing to %q: %w: %w", f.subject, broker.ErrRefused, nats.ErrPermissionViolation)
	case <-late.C:
		b.p.link.unheard(f.at)
		err := fmt.Errorf("natsbroker: publishing to %q: perhaps stored: no confirmation within %v", f.subject, b.p.cfg.AckTimeout)
		if odd := b.p.answers.forget(f.id).odd; odd != nil {
			err = fmt.Errorf("%w: %w", err, odd)
		}
		b.errs[i] = err
	case <-ctx.Done():
		return fmt.Errorf("natsbroker: publishing: %w", context.Cause(ctx))
	}
	b.p.answers.forget(f.id)
	return nil
}

// answered takes what the stream says of message i.
func (b *batch) answered(ctx context.Context, i int, err error) {
	subject := b.sent[i].subject
	if errors.Is(err, nats.ErrNoResponders) {
		if err = b.noStream(ctx, subject, err); !errors.Is(err, broker.ErrNoTopic) {
			b.p.link.unheard(b.sent[i].at)
		}
	} else {
		b.p.link.unanswered.over()
	}
	if err != nil {
		b.errs[i] = b.p.publishErr(subject, err)
		return
	}
	b.p.proved(subject)
}

// leave lets go of what nobody waits for any more.
func (b *batch) leave() {
	for _, f := range b.sent[max(b.first-1, 0):] {
		b.p.answers.forget(f.id)
	}
}

// noStream finds out whether there is no such stream, or it is only away: being moved, or choosing a leader. It asks once for
// each subject.
func (b *batch) noStream(ctx context.Context, subject string, err error) error {
	if said, ok := b.away[subject]; ok {
		return said
	}
	if _, serr := b.p.streamOf(ctx, subject); errors.Is(serr, broker.ErrNoTopic) {
		err = broker.NoTopic(fmt.Errorf("%w: %w", serr, err))
	}
	if b.away == nil {
		b.away = map[string]error{}
	}
	b.away[subject] = err
	return err
}

func (p *Publisher) publishErr(subject string, err error) error {
	err = p.cfg.redact(err)
	if refusal(err) && !errors.Is(err, broker.ErrRefused) {
		return fmt.Errorf("natsbroker: publishing to %q: %w: %w", subject, broker.ErrRefused, err)
	}
	return fmt.Errorf("natsbroker: publishing to %q: %w", subject, err)
}

// accountFull is the server's error where the limits of an account are reached. It has the code of a bad request, and ends when
// there is room again.
const accountFull jetstream.ErrorCode = 10002

// refusal says whether the server would never store the message as it is.
func refusal(err error) bool {
	for _, e := range []error{
		nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrBadHeaderMsg, nats.ErrHeadersNotSupported, nats.ErrPermissionViolation,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode == accountFull {
		return false
	}
	return api.Code == 400 || api.Code == 403 || api.Code == 404
}

// watchDenied returns a channel that is closed when the server denies publishing to subject: it answers so apart from the
// message.
func (p *Publisher) watchDenied(subject string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	ch, ok := p.denied[subject]
	if !ok {
		if len(p.denied) > 1024 { // who is still waiting for one of these runs into its timeout
			clear(p.denied)
		}
		ch = make(chan struct{})
		p.denied[subject] = ch
	}
	return ch
}

func (p *Publisher) problem(_ *nats.Subscription, err error) {
	subject := denied(err)
	if subject == "" {
		p.answers.refused(err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ch, ok := p.denied[subject]; ok {
		close(ch)
		delete(p.denied, subject)
	}
}

// encode is encode of what is not for our own inbox: it would be taken there for an answer of the server.
func (p *Publisher) encode(o broker.Outgoing) (*nats.Msg, error) {
	if own := p.cfg.InboxPrefix; own != "" && strings.HasPrefix(o.Topic, own+".") {
		return nil, fmt.Errorf("%w: %q begins with %s.: NATS delivers answers there", broker.ErrReserved, o.Topic, own)
	}
	return encode(o)
}

// encode makes the NATS message, and refuses what NATS would change.
func encode(o broker.Outgoing) (*nats.Msg, error) {
	if err := publishable(o.Topic); err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: o.Topic, Data: o.Value}
	if len(o.Headers) == 0 && o.Key == nil && o.ID == "" {
		return m, nil
	}
	m.Header = make(nats.Header, len(o.Headers)+2)
	for _, h := range o.Headers {
		if !validHeaderKey(h.Key) {
			return nil, fmt.Errorf("header %q: the name is not one that NATS can carry", h.Key)
		}
		if isCommand(h.Key) {
			h.Key = broker.ReservedPrefix + h.Key
		}
		v := string(h.Value)
		if strings.HasPrefix(h.Key, broker.ReservedPrefix) {
			v = oneLine(v) // our own are text for people
		}
		if !intact(v) {
			return nil, fmt.Errorf("header %q: NATS cannot carry line breaks, nor blanks at the ends of a value", h.Key)
		}
		m.Header[h.Key] = append(m.Header[h.Key], v)
	}
	if o.Key != nil {
		delete(m.Header, headerKeyBase64)
		if k := string(o.Key); intact(k) {
			m.Header[broker.HeaderKey] = []string{k}
		} else {
			delete(m.Header, broker.HeaderKey)
			m.Header[headerKeyBase64] = []string{base64.StdEncoding.EncodeToString(o.Key)}
		}
	}
	if o.ID != "" {
		if !intact(o.ID) {
			return nil, fmt.Errorf("id %q: NATS cannot carry line breaks, nor blanks at the ends", o.ID)
		}
		m.Header[jetstream.MsgIDHeader] = []string{o.ID}
	}
	return m, nil
}

// publishable says whether a subject names one place that takes messages: no wildcards, no empty tokens, no blanks, not the
// server's own.
func publishable(subject string) error {
	if err := broker.CheckDestination(subject); err != nil {
		return err
	}
	if subject == "" {
		return errors.New("the subject is empty")
	}
	if strings.ContainsAny(subject, " \t\r\n\x00") {
		return errors.New("the subject has blanks")
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || token == "*" || token == ">" {
			return errors.New("the subject has wildcards or empty tokens")
		}
	}
	return nil
}

// isCommand says whether the server would act on a header.
func isCommand(key string) bool {
	const prefix = "Nats-"
	return len(key) >= len(prefix) && strings.EqualFold(key[:len(prefix)], prefix)
}

// validHeaderKey is RFC 9110's token, less what nats.go refuses: printable ASCII without blanks and colons.
func validHeaderKey(k string) bool {
	for i := range len(k) {
		if c := k[i]; c <= ' ' || c == ':' || c >= 0x7f {
			return false
		}
	}
	return k != ""
}

// intact says whether a header value survives the way through NATS: line breaks end a header, and blanks at the ends are cut.
func intact(v string) bool {
	return !strings.ContainsAny(v, "\r\n") && strings.Trim(v, " \t") == v
}

func oneLine(v string) string {
	return strings.Trim(strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ").Replace(v), " \t")
}

// Close implements broker.Publisher.
func (p *Publisher) Close(ctx context.Context) error {
	return p.life.Close(ctx, func() error {
		p.link.close()
		return nil
	})
}
