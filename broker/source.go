package broker

import (
	"context"
	"time"
)

// A Source is one subscription: it pulls messages, hands them out in chunks, and settles them.
type Source interface {
	// Open connects and subscribes. It is called once: another call says ErrOpened, or ErrClosed after Stop or Close, and changes
	// nothing. Errors of configuration that the broker can tell are returned at once.
	// While the broker is away it tries on, with Down events, until ctx ends: to fail fast, give ctx a deadline. So it does, with a
	// Warning that names it, while nothing of what it names to read exists, unless its settings say otherwise: else a process with
	// a slip in a name would be taken for ready. ctx bounds Open only; nothing that goes on afterwards derives from it. After an
	// error only Stop and Close may be called.
	//
	// Close ends an Open that waits, and Open says ErrClosed then, as it does after Close. Stop does not end it: that is ctx's part.
	// After a Stop, before Open or under way, Open says ErrClosed, or opens a source that pulls nothing; no claim need begin then,
	// and where none was Assigned none is Ended.
	Open(ctx context.Context, o Options) (Traits, error)

	// Receive blocks until there are messages, then fills dst with 1..len(dst) of them, all of one claim. They come in the order in
	// which the broker delivers them, which with Traits.Ordered is, for what was never delivered before, that of the offsets of a
	// partition. A broker that keeps none promises none. dst is the caller's and is not kept; len(dst) > 0. Each
	// message is set as a whole, whatever stood there before. It is called by one goroutine at a time.
	//
	// It never returns n > 0 with an error: an error hands out nothing and loses nothing. It never hands out a message that is
	// outstanding here, even if the broker redelivers it, and never one of a claim that is revoking (the claim may turn so a moment
	// later). ErrClosed after Stop. Any other error ends pulling for good: the engine drains as after Stop, and calls Close. Claims
	// do not end by it: until Close what is out stays claimed and extended, and acks are nil and hold, as after Stop. A claim that
	// is lost itself (its consumer was deleted, the group refuses the member) ends at once, as ever.
	//
	// Such an error is only for what stays so until a person acts: the broker refuses who we are or what we may do, the group
	// refuses our settings, what is read was deleted and may not be made again, something cannot be decoded and the policy is to
	// stop. What may pass by itself is tried again after a pause and told by Down, however long it takes: no connection, no leader,
	// a topic that is not there yet, a quota, an error that the adapter does not know.
	//
	// There is no ctx, Stop ends it: with one, a chunk that was already counted as outstanding could be dropped at its end.
	Receive(dst []Message) (n int, err error)

	// Ack settles messages as handled. The engine settles every message that it was handed exactly once, by Ack or Nack, also after
	// a revocation, a claim's end, Stop, a fatal error and Close; the adapter counts on it, and each settle frees the budget
	// whatever it returns. tokens are of messages of c, not empty, and read during the call only. From any goroutine. It does not
	// wait for the network.
	//
	// nil: will be committed, by repeated tries, or reported as Unconfirmed; until either is known the adapter remembers it, and
	// acks again what is delivered again (see Redeliveries in the package comment). ErrLost: none (the claim has ended) or not all
	// (a lease ran out); in the second case a *LostError says how many. ErrSettled: not all, some were settled before. When both are
	// true, ErrLost. ErrForeign: c is of another source, and nothing was settled.
	Ack(c *Claim, tokens []uint64) error

	// Nack gives messages back to the broker, in the given order: they come again, here or elsewhere, not before Back.Delay where
	// Delay <= Traits.NativeDelay. The adapter keeps no payload of them: Kafka marks the offsets and, while the claim is open,
	// fetches them again. back is not empty, and read during the call only. Other rules and results as for Ack.
	//
	// nil promises only that they come again. One that could not be said to the broker before its lease ran out is not said any
	// more: that is reported as Unconfirmed, and the message comes again by its lease, elsewhere perhaps before its Delay and
	// without its Runs. One that was sent and got lost on the way comes again so, too; where the adapter cannot know that, it
	// reports nothing. One that the broker has dropped meanwhile (retention, a purge) cannot come again: that is nil, too, and told
	// as a Gap where the adapter can learn of it. (JetStream drops what waits for its redelivery without a word.)
	Nack(c *Claim, back []Back) error

	// Stop ends pulling. It does not block, and may be called any number of times, by any goroutine, also before or beside Open. No
	// new pulls and no new claims; what Receive has not returned goes back to the broker (with Options.Ordered, not before what
	// stands before it is settled); Receive wakes with ErrClosed. A Receive that met Stop may still return messages; the next one
	// does not. Outstanding messages stay claimed and are extended; revocations and heartbeats go on.
	Stop()

	// Close ends everything, in the order of the package comment: fence, end the claims (cause ErrClosed), last commit with what is
	// given back, leave. It may be called any number of times, by any goroutine, beside Ack and Nack, without Stop before (it
	// implies it), and also before Open, beside it, or after a failed one. It returns when the broker has received all that
	// (received is not yet durable), which is nil, or, with an error, when ctx ended before that, or when nobody can find out any
	// more whether what was given back was received: it comes again by its lease then. No goroutine outlives it by more than a
	// network timeout. The first call's ctx decides: any other waits until that has returned, also beyond its own ctx, and returns
	// its result.
	Close(ctx context.Context) error
}

// Options is what the engine tells a source at Open.
type Options struct {
	Budget Budget
	// Ordered: the engine keeps an order. Give back nothing that stands behind a message still out: at Stop and Pause, what is
	// prefetched goes back when all that is out was settled. And hand out nothing under a claim while messages are out here under an
	// earlier claim of the same topic and partition: they come again, perhaps, and what comes after them would be ahead of them. It
	// holds whatever Traits.Ordered says, since the engine learns the traits only from Open.
	Ordered bool
	// Await, where it is not nil, is called once by Open, when the broker has answered and nothing is missing that Open waits for,
	// and before anything is claimed: no message, no partition, no place in the group that others would have to make. It blocks
	// until the other sources of the consumer are as far, for while they are not, nobody handles what is claimed here. Its error is
	// that of Open; ctx is Open's, and ends by Close, too. It is called with no lock of the adapter held, and may take as long as
	// Open. nil: the source is alone.
	Await func(ctx context.Context) error
	// Observe is called for each event; never nil. It is quick, and is called with no lock of the adapter held, since it may call
	// back (SetBudget, Lag, Pause). In order for each claim; the source may call it from several goroutines, that of Open (before it
	// has returned) and that of Receive among them.
	Observe func(Event)
	// Operated, where it is not nil, is told each request for messages and each settle that is over, at most once for each request
	// and never for each message; nil: nothing is measured. What the adapter itself cut off, as Close does, is not told. Like
	// Observe it is quick, and is called with no lock of the adapter held; by several goroutines at once, and in no order. An
	// adapter that has no requests tells none.
	Operated func(Operation)
}

// A Budget bounds what is between the broker and its settle. It is freed by the engine's settle, whatever that returns, and not
// by a claim's end: else a source whose claims come and go under slow handlers would exceed it several times over.
type Budget struct {
	// Messages is how many may be handed out and not settled, never more. What is prefetched does not count, unless an adapter
	// chooses so, as one does whose prefetch uses up leases or deliveries.
	Messages int `yaml:"messages" want:"1.."`
	// Bytes of payload (Key, Value and Headers.Bytes; an adapter may count what else of a message it keeps) of what is handed out
	// and not settled, and of all that is prefetched, decompressed, or asked for and under way. Nothing is asked for beyond it; what
	// an answer then brings may go over, for a broker may answer with more than was asked (a whole batch), and a message above the
	// budget has to come through. What is handed out goes over by one message at most, so a message above the budget is handed out
	// alone.
	Bytes int64 `yaml:"bytes" want:"1.."`
}

// Traits are what a source can and cannot do. They are known after Open; the engine refuses a configuration that asks for more.
type Traits struct {
	// Ordered: one holder per key at a time, over all replicas. It may depend on Options.Ordered: with it, a broker whose processes
	// share messages may let one of them work at a time. Not set, the engine keeps an order within the process, and warns.
	Ordered bool
	// Attempts says how far to trust Message.Attempt.
	Attempts Trust
	// NativeDelay is the longest delay that the broker itself keeps for a Nack; where there is no limit, some years, which may be
	// added to a time. 0: none; then the engine parks what waits, and the adapter keeps it claimed.
	NativeDelay time.Duration
	// MaxDeliveries is after how many deliveries the broker drops or diverts a message; 0: never. The engine hands it on before
	// that. A source that can hear of another limit later is a DeliveryLimiter.
	MaxDeliveries int
	// AtMostOnce: nothing comes again. Ack only frees budget, and Nack says ErrLost.
	AtMostOnce bool
	// Together: the unsettled messages of a claim are lost together or not at all; no ack of one comes too late while that of a
	// later one is taken. Then several messages of a key may be handled before they are acked.
	Together bool
	// Atomic: what is emitted with an ack is stored together with it, or neither is. The source is an Emitter.
	Atomic bool
}

// Trust says what Message.Attempt means.
type Trust int

const (
	// AtLeast: a lower bound, forgotten at a restart (Kafka).
	AtLeast Trust = iota
	// AtMost: an upper bound, for it counts deliveries that no handler saw (JetStream, share groups). Alone it is no reason to
	// dead-letter: five deploys that give a message back use up five of them.
	AtMost
	// Exact: the number of this run.
	Exact
)

var trustNames = [...]string{AtLeast: "at least", AtMost: "at most", Exact: "exact"}

// String returns the name in lower case.
func (t Trust) String() string {
	if t < AtLeast || int(t) >= len(trustNames) {
		return "unknown"
	}
	return trustNames[t]
}

// Back is a message that is given back.
type Back struct {
	Token uint64
	// Delay before it may come again; 0: at once.
	Delay time.Duration
	// Runs is how often a handler has run it and failed, all told; 0 where none has. A rolling deploy thus uses up no attempts. It
	// is never less than the Message.Runs that the message came with. An adapter that can keep the number (commit metadata, memory)
	// does, the larger one where it knows of two, and reports it as Message.Runs.
	Runs int32
}
