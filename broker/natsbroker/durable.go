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
	"github.com/longshoremq/longshore/internal/natssubject"
)

// A durable is the consumer as it is on the server, with its stream.
type durable struct {
	consumer *jetstream.ConsumerInfo
	stream   *jetstream.StreamInfo // nil where we may not ask for it
	warnings []error               // what differs from the configuration, one a field
	asked    question              // that has this for its answer
	made     string                // where it begins, where it was not there; empty: it was
}

// resumed marks a consumer that was created to go on after another one, so that its start is no foreign setting.
const resumed = "longshore-resumed"

// requestTimeout bounds one question to the JetStream API.
const requestTimeout = 3 * time.Second

// after says from where to go on, when the consumer was lost, or where we waited for its stream.
type after struct {
	stream  time.Time // creation of the stream that floor is of
	floor   uint64    // all up to it is settled
	started bool
	missed  time.Time // when we first looked for a stream that was not there; zero: it was
	proof   witnesses // by which to find out whether it is still the stream that floor is of
	older   bool      // it is not
	blind   bool      // the stream may not be asked for, as far as we know
	silent  int       // looks to which it did not answer
}

// errSilent says that the stream does not answer: it is choosing its leader, or we may not ask. It passes. errUnproven is that it
// does not say whether it is the one that floor is of.
var (
	errSilent   = fmt.Errorf("no answer: %w", context.DeadlineExceeded)
	errUnproven = fmt.Errorf("whether it is the same stream: %w", errSilent)
)

// mostSilent is how many looks without an answer of the stream it takes for one that we may not ask, where nobody says so.
const mostSilent = 3

// without takes the error of a look, and says whether the next one goes on without the answer that was missing; denied: the
// server has said that we lack a right. That there is a stream, one that was up knows.
func (a *after) without(err error, denied bool) bool {
	if !errors.Is(err, errSilent) {
		return false
	}
	a.silent++
	switch {
	case a.silent < mostSilent && !denied:
		return false
	case errors.Is(err, errUnproven):
		a.proof = nil
		return true
	}
	a.blind = !a.started
	return a.blind
}

// ensure finds or creates the stream and the consumer. It never changes an existing one.
func (c Config) ensure(ctx context.Context, nc *nats.Conn, from after, ordered bool) (durable, error) {
	if !nc.HeadersSupported() {
		return durable{}, fmt.Errorf("natsbroker: without headers (no_header_support) the server does not tell what becomes of a "+
			"pull: %w", nats.ErrHeadersNotSupported)
	}
	js, err := c.api(nc)
	if err != nil {
		return durable{}, err
	}
	d := durable{}
	if d.stream, err = c.ensureStream(ctx, js); err != nil {
		return d, err
	}
	if d.stream == nil && !from.blind { // else a consumer that we make would begin as if there had never been one
		return d, fmt.Errorf("natsbroker: looking for stream %s: %w", c.Stream, errSilent)
	}
	if d.stream != nil && c.CreateStream != nil {
		d.warnings = streamDiffers(*c.CreateStream, d.stream.Config)
	}
	if d.stream != nil && from.started {
		var sure bool
		if from.older, sure = c.lost(ctx, nc, from.proof); !sure {
			return d, fmt.Errorf("natsbroker: looking for messages of stream %s: %w", c.Stream, errUnproven)
		}
	}
	var made bool
	d.consumer, made, err = c.ensureConsumer(ctx, js, c.wanted(c.start(d.stream, from), ordered))
	if made {
		d.made = begins(d.consumer.Config)
	}
	if err != nil {
		return d, err
	}
	if err := usable(d.consumer.Config, ordered); err != nil {
		return d, fmt.Errorf("natsbroker: consumer %s of stream %s: %w", c.Consumer, c.Stream, err)
	}
	d.warnings = append(d.warnings, c.consumerDiffers(d.consumer.Config, ordered)...)
	d.warnings = append(d.warnings, d.strangers()...)
	return d, nil
}

// start is the sequence at which a consumer begins that we create, or 0 to begin as configured. On a work queue all that is there
// is unsettled, and the server takes no other start.
//
// A stream that was made after we began has nothing from before, so none of it is skipped, whatever Deliver says. The sequence: a
// producer makes the stream and writes to it; we find it a moment later; a consumer that begins with what is new would begin
// behind that. Nor is there anything to go on after in a stream that ends before the floor, or has other messages by now where it
// had those that were handled here: it was restored from an older copy, and gives the sequences up to the floor to others.
func (c Config) start(st *jetstream.StreamInfo, from after) uint64 {
	switch {
	case st == nil || st.Config.Retention == jetstream.WorkQueuePolicy:
		return 0
	case from.started && st.Created.Equal(from.stream) && from.floor <= st.State.LastSeq && !from.older:
		return from.floor + 1
	case from.started || from.awaits(st):
		return c.beginning()
	}
	return 0
}

// awaits says whether a stream was made after we had looked for it in vain: its age is by its server's clock.
func (a after) awaits(st *jetstream.StreamInfo) bool {
	return !a.missed.IsZero() && st.TimeStamp.Sub(st.Created) < time.Since(a.missed)
}

// beginning is the start of a consumer that gets all that is there.
func (c Config) beginning() uint64 {
	if c.Deliver == jetstream.DeliverAllPolicy {
		return 0
	}
	return 1
}

func (c Config) api(nc *nats.Conn) (jetstream.JetStream, error) {
	if c.Domain != "" {
		return jetstream.NewWithDomain(nc, c.Domain)
	}
	return jetstream.New(nc)
}

func (c Config) ensureStream(ctx context.Context, js jetstream.JetStream) (*jetstream.StreamInfo, error) {
	short, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	st, err := js.Stream(short, c.Stream)
	switch {
	case err == nil:
		return st.CachedInfo(), nil
	case errors.Is(err, jetstream.ErrStreamNotFound) && c.CreateStream != nil:
		st, err = js.CreateStream(short, *c.CreateStream)
		if err == nil {
			return st.CachedInfo(), nil
		}
		return nil, fmt.Errorf("natsbroker: creating stream %s: %w", c.Stream, err)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("natsbroker: there is no stream %s; make it, or let CreateStream (create_stream in a file) do it: %w",
			c.Stream, err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && nc(js).IsConnected() && c.CreateStream == nil:
		return nil, nil // perhaps we may not ask; the consumer decides
	case errors.Is(err, nats.ErrNoResponders) && c.CreateStream == nil && c.reachesConsumer(short, js):
		return nil, nil // the same where our account does not import the question
	}
	return nil, fmt.Errorf("natsbroker: looking for stream %s: %w", c.Stream, err)
}

// reachesConsumer says whether a question about the consumer is answered.
func (c Config) reachesConsumer(ctx context.Context, js jetstream.JetStream) bool {
	_, err := js.Consumer(ctx, c.Stream, c.Consumer)
	return err == nil || errors.Is(err, jetstream.ErrConsumerNotFound)
}

func nc(js jetstream.JetStream) *nats.Conn { return js.Conn() }

func (c Config) ensureConsumer(
	ctx context.Context, js jetstream.JetStream, wanted jetstream.ConsumerConfig,
) (info *jetstream.ConsumerInfo, made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cons, err := js.Consumer(ctx, c.Stream, c.Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) && !c.Bind {
		cons, err = c.create(ctx, js, wanted)
		made := err == nil
		if errors.Is(err, jetstream.ErrConsumerExists) { // another process was faster, with other settings
			cons, err = js.Consumer(ctx, c.Stream, c.Consumer)
		}
		if err != nil {
			return nil, false, fmt.Errorf("natsbroker: creating consumer %s of stream %s: %w", c.Consumer, c.Stream, err)
		}
		return cons.CachedInfo(), made, nil
	}
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, false, fmt.Errorf("natsbroker: there is no consumer %s of stream %s, and Bind is set (bind in a file): "+
			"make it, or mend its name: %w", c.Consumer, c.Stream, err)
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, false, fmt.Errorf("natsbroker: consumer %s of stream %s pushes to a subject; a pull consumer is needed "+
			"(docs/start-nats.md, Taking over a running durable): %w",
			c.Consumer, c.Stream, err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("natsbroker: looking for consumer %s of stream %s: %w", c.Consumer, c.Stream, err)
	}
	return cons.CachedInfo(), false, nil
}

// begins says where a consumer begins that was just made.
func begins(cc jetstream.ConsumerConfig) string {
	switch cc.DeliverPolicy {
	case jetstream.DeliverNewPolicy:
		return "the next message: what is there already is not handled"
	case jetstream.DeliverLastPolicy:
		return "the last message"
	case jetstream.DeliverLastPerSubjectPolicy:
		return "the last message of each subject"
	case jetstream.DeliverByStartSequencePolicy:
		return fmt.Sprintf("sequence %d", cc.OptStartSeq)
	case jetstream.DeliverByStartTimePolicy:
		return "the first message from " + cc.OptStartTime.UTC().Format(time.RFC3339Nano)
	}
	return "the first message: all that is there is handled"
}

// create makes the consumer. A server that cannot pin does not say so: it makes one without the group.
func (c Config) create(ctx context.Context, js jetstream.JetStream, wanted jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	pins := pinned(wanted) != ""
	near := c.Domain == "" // else the one that pins may be another server
	if err := canPin(nc(js).ConnectedServerVersion()); pins && near && err != nil {
		return nil, err
	}
	cons, err := js.CreateConsumer(ctx, c.Stream, wanted)
	if err == nil && pins && pinned(cons.CachedInfo().Config) == "" {
		if err := js.DeleteConsumer(ctx, c.Stream, c.Consumer); err != nil {
			return nil, fmt.Errorf("%w; deleting it again: %w", errNotPinned, err)
		}
		return nil, errNotPinned
	}
	return cons, err
}

// Durable is the consumer that Open creates where there is none; ordered as in broker.Options.Ordered. It is for those who may
// change one that is there, which Open never does.
func (c Config) Durable(ordered bool) jetstream.ConsumerConfig {
	return c.withDefaults().wanted(0, ordered)
}

// wanted is the consumer that we create.
func (c Config) wanted(start uint64, ordered bool) jetstream.ConsumerConfig {
	cc := jetstream.ConsumerConfig{
		Durable:        c.Consumer,
		DeliverPolicy:  c.Deliver,
		OptStartSeq:    c.StartSequence,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        c.AckWait,
		MaxDeliver:     -1, // a limit drops messages without a word; the engine counts
		MaxAckPending:  c.MaxAckPending,
		FilterSubjects: c.Subjects,
	}
	if len(c.Subjects) == 1 { // the form that servers before 2.10 know, too
		cc.FilterSubject, cc.FilterSubjects = c.Subjects[0], nil
	}
	if ordered {
		cc.PriorityPolicy, cc.PriorityGroups, cc.PinnedTTL = jetstream.PriorityPolicyPinned, []string{pinGroup}, pinTTL(c.AckWait)
	}
	if !c.StartTime.IsZero() {
		cc.OptStartTime = &c.StartTime
	}
	if start > 0 {
		cc.DeliverPolicy, cc.OptStartSeq, cc.OptStartTime = jetstream.DeliverByStartSequencePolicy, start, nil
		cc.Metadata = map[string]string{resumed: "true"}
	}
	return cc
}

// leastLease is the least that an ack wait may be, as Config.AckWait.
const leastLease = 20 * time.Millisecond

// usable refuses a consumer on which the promises cannot be kept.
func usable(cc jetstream.ConsumerConfig, ordered bool) error {
	switch {
	case cc.DeliverSubject != "":
		return errors.New("it pushes to a subject; a pull consumer is needed")
	case cc.AckPolicy != jetstream.AckExplicitPolicy:
		return fmt.Errorf("ack_policy is %v; explicit is needed, for messages are settled one by one", cc.AckPolicy)
	}
	if err := tooShort(cc); err != nil {
		return err
	}
	return unfit(cc, ordered)
}

// tooShort refuses leases that run out before anything can be done. Set while a source runs it is only told of: all is handled,
// and handled again.
func tooShort(cc jetstream.ConsumerConfig) error {
	switch {
	case lease(cc) >= leastLease:
		return nil
	case len(cc.BackOff) > 0:
		return fmt.Errorf("backoff is %v: with a step below %v messages go to others before they can be handed out; remove it",
			cc.BackOff, leastLease)
	}
	return fmt.Errorf("ack_wait is %v: below %v messages go to others before they can be handed out", cc.AckWait, leastLease)
}

// unfit refuses what no process may go on with, either, when it is set while that runs.
func unfit(cc jetstream.ConsumerConfig, ordered bool) error {
	switch {
	case cc.HeadersOnly:
		return errors.New("headers_only is set: messages come without their payload, and would be acked unseen; set it to false")
	case cc.PriorityPolicy != jetstream.PriorityPolicyNone && pinned(cc) == "":
		return errors.New("its priority_policy is neither none nor pinned_client: others are not supported")
	case pinned(cc) != "" && !ordered:
		return fmt.Errorf("it has the priority group %s with priority_policy pinned_client, which is for an order: "+
			"with none, use a consumer without it", pinned(cc))
	}
	return nil
}

// consumerDiffers says, field by field, what an existing consumer has otherwise.
func (c Config) consumerDiffers(cc jetstream.ConsumerConfig, ordered bool) []error {
	var d differences
	d.what = fmt.Sprintf("consumer %s of stream %s", c.Consumer, c.Stream)
	if cc.MaxDeliver > 0 {
		d.addf("max_deliver is %d: the server drops a message after that many deliveries; set it to -1", cc.MaxDeliver)
	}
	short := tooShort(cc)
	switch {
	case short != nil:
		d.addf("%w", short)
	case len(cc.BackOff) > 0:
		d.addf("backoff is %v: it overrides ack_wait, and delays of retries; remove it", cc.BackOff)
	}
	if cc.InactiveThreshold > 0 {
		d.addf("inactive_threshold is %v: the server deletes the consumer when nobody pulls for so long", cc.InactiveThreshold)
	}
	want := c.wanted(0, ordered)
	if ordered && pinned(cc) == "" {
		d.addf("it has no priority group: the order holds within this process only, and not beside another one; "+
			"set priority_policy to pinned_client, priority_groups to %v and priority_timeout to %v (nats-server %s)",
			want.PriorityGroups, pinTTL(cc.AckWait), pinVersion)
	}
	if c.Bind {
		return d.errs
	}
	if pinned(cc) != "" {
		if least := pinTTL(cc.AckWait); cc.PinnedTTL != least {
			d.addf("priority_timeout is %v there: set it to %v, 1¼ times its ack_wait of %v", cc.PinnedTTL, least, cc.AckWait)
		}
	}
	if len(cc.BackOff) == 0 && short == nil {
		differs(&d, "ack_wait", cc.AckWait, want.AckWait)
	}
	differs(&d, "max_ack_pending", cc.MaxAckPending, want.MaxAckPending)
	if _, ok := cc.Metadata[resumed]; !ok {
		differs(&d, "deliver_policy", cc.DeliverPolicy, want.DeliverPolicy)
		differs(&d, "opt_start_seq", cc.OptStartSeq, want.OptStartSeq)
	}
	there, here := filterOf(cc), filterOf(want)
	if !slices.Equal(there, here) {
		d.addf("filter_subjects is %v there and %v here: theirs holds", there, here)
	}
	return d.errs
}

func filterOf(cc jetstream.ConsumerConfig) []string {
	f := slices.Clone(cc.FilterSubjects)
	if cc.FilterSubject != "" {
		f = append(f, cc.FilterSubject)
	}
	slices.Sort(f)
	return f
}

// strangers are the subjects of the consumer's filter that none of the stream's has anything of, a slip of the pen mostly: the
// server takes them without a word, and nothing ever comes. What a stream copies from others, or gives another subject, has
// subjects that it does not name.
func (d durable) strangers() (found []error) {
	if d.stream == nil || d.stream.Config.Mirror != nil || len(d.stream.Config.Sources) > 0 ||
		d.stream.Config.SubjectTransform != nil {
		return nil
	}
	has := d.stream.Config.Subjects
	for _, filter := range filterOf(d.consumer.Config) {
		if !slices.ContainsFunc(has, func(s string) bool { return natssubject.Overlap(s, filter) }) {
			found = append(found, fmt.Errorf("natsbroker: consumer %s of stream %s: filter_subjects has %q, and the stream takes "+
				"only %v: nothing new will come of it", d.consumer.Name, d.stream.Config.Name, filter, has))
		}
	}
	return found
}

func streamDiffers(want, have jetstream.StreamConfig) []error {
	var d differences
	d.what = "stream " + have.Name
	there, here := slices.Sorted(slices.Values(have.Subjects)), slices.Sorted(slices.Values(want.Subjects))
	if !slices.Equal(there, here) && len(here) > 0 {
		d.addf("subjects is %v there and %v here: theirs holds", there, here)
	}
	differs(&d, "retention", have.Retention, want.Retention)
	differs(&d, "storage", have.Storage, want.Storage)
	differs(&d, "discard", have.Discard, want.Discard)
	differs(&d, "num_replicas", have.Replicas, max(want.Replicas, 1))
	differs(&d, "max_msgs", have.MaxMsgs, unlimited(want.MaxMsgs))
	differs(&d, "max_bytes", have.MaxBytes, unlimited(want.MaxBytes))
	differs(&d, "max_msgs_per_subject", have.MaxMsgsPerSubject, unlimited(want.MaxMsgsPerSubject))
	differs(&d, "max_age", have.MaxAge, want.MaxAge)
	return d.errs
}

// unlimited is how the server writes a limit that was left at 0.
func unlimited(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}

type differences struct {
	what string
	errs []error
}

func (d *differences) addf(format string, args ...any) {
	d.errs = append(d.errs, fmt.Errorf("natsbroker: "+d.what+": "+format, args...))
}

func differs[T comparable](d *differences, field string, there, here T) {
	if there != here {
		d.addf("%s is %v there and %v here: theirs holds", field, there, here)
	}
}

// lease is how long the server waits for a sign: the shortest that it may use.
func lease(cc jetstream.ConsumerConfig) time.Duration {
	if len(cc.BackOff) > 0 {
		return slices.Min(cc.BackOff)
	}
	return cc.AckWait
}

// exact says whether every sequence of the stream comes to this consumer, so that a missing one was skipped.
func (d durable) exact() bool {
	cc := d.consumer.Config
	if d.stream == nil || cc.DeliverPolicy == jetstream.DeliverLastPerSubjectPolicy {
		return false
	}
	return takesAll(filterOf(cc), d.stream.Config) && !replaces(d.stream.Config)
}

// replaces says whether a stream may have sequences missing that were not lost. A mirror has its origin's, by a filter perhaps,
// and the origin may be one of the others: they keep the last messages of a subject, and what is missing was replaced.
func replaces(sc jetstream.StreamConfig) bool {
	return sc.Mirror != nil || sc.MaxMsgsPerSubject > 0 || sc.AllowRollup
}

// holes are those that the stream may have had when the consumer was made.
func (d durable) holes() (h holes) {
	if d.stream == nil || d.stream.State.NumDeleted == 0 {
		return h
	}
	if d.consumer.Delivered.Consumer == 0 {
		h.until = d.stream.State.LastSeq
	}
	h.made = d.consumer.Created.UnixNano()
	return h
}

// nativeDelay is for how long JetStream keeps a delayed nak: as long as it keeps the message.
const nativeDelay = 10 * 365 * 24 * time.Hour

func (d durable) traits(ordered bool) broker.Traits {
	return broker.Traits{
		Ordered:       ordered && pinned(d.consumer.Config) != "",
		Attempts:      broker.AtMost,
		NativeDelay:   nativeDelay,
		MaxDeliveries: max(d.consumer.Config.MaxDeliver, 0),
	}
}

// passing says whether an error of the JetStream API may go away by itself.
func passing(err error) bool {
	for _, e := range []error{context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionClosed,
		nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, nats.ErrDisconnected, nats.ErrNoServers,
		nats.ErrStaleConnection} {
		if errors.Is(err, e) {
			return true
		}
	}
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	return api.Code == 503 && api.ErrorCode != jetstream.JSErrCodeJetStreamNotEnabledForAccount ||
		api.ErrorCode == streamOffline || api.ErrorCode == consumerOffline
}

// mayPass says whether an error of the JetStream API may go away while others act: there is no room, or the server has a fault
// that we do not know. Who begins is told of it at once; who runs waits.
func mayPass(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabledForAccount {
		return false
	}
	return api.Code >= 500 ||
		slices.Contains([]jetstream.ErrorCode{accountFull, noMoreConsumers, noMoreStreams, noPeers}, api.ErrorCode)
}

// The limits of an account, or a stream, and too few servers for the replicas at the moment. They have the code of a bad request.
const (
	noPeers         jetstream.ErrorCode = 10005
	noMoreConsumers jetstream.ErrorCode = 10026
	noMoreStreams   jetstream.ErrorCode = 10027
)

// The servers that have the stream, or the consumer, are away. It has the code of a fault of the server.
const (
	streamOffline   jetstream.ErrorCode = 10118
	consumerOffline jetstream.ErrorCode = 10119
)
