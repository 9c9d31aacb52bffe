package consumer

import (
	"context"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/pool"
)

// An Observer is told each Event where it happens, by several goroutines at once, with no lock held. It must be quick: workers
// and the source wait for it. A panic is written through package log, and nothing else comes of it. It must not end its goroutine
// (runtime.Goexit, as FailNow and Fatal of a test do): a message may be in its hands, which goes back when the consumer ends.
// Use a type switch for the events of interest. What an event refers to may be kept.
type Observer func(Event)

// An Event is one thing that happened. Name is stable: it is the event's name in logs and metrics.
type Event interface{ Name() string }

// The events, one type for each.
type (
	// StateChanged: the consumer entered a state.
	StateChanged struct{ State State }

	// SourceEvent: something of the source's own: assigned, ended, up, down, gap, unconfirmed, stalled, warning, notice. It has
	// the same name.
	SourceEvent struct {
		broker.Event
		// Input is which of Config.Sources it is, from 0 on; 0 where there is one source.
		Input int
		// Retries: it is the source of the retry topics.
		Retries bool
	}

	// Operated: a request to the broker is over, a fetch or a settle (see broker.Operation). It comes at most once for each
	// request, and is neither logged nor, where there is no Observer, measured.
	Operated struct {
		broker.Operation
		// Retries: it is the source of the retry topics.
		Retries bool
	}

	// Handled: N messages were handled by one worker, one after the other or as a batch, and their calls took Took together. Where
	// others failed beside them, in the same batch or what the worker was handed, Took is their share of the time by number.
	Handled struct {
		N    int
		Took time.Duration
	}

	// Failed: a handler run failed, and what was decided about its message.
	Failed struct {
		Message *Message
		Err     error
		// Class is a stable word for the failure: those of [FailureClasses].
		Class string
		// Runs is how often a handler has run it and failed, this time included, as far as is known; 0 where no handler ran.
		Runs int32
		// Verdict is what was decided: VerdictRetry or VerdictDeadLetter.
		Verdict Verdict
		// Delay before the next attempt, where Verdict is VerdictRetry.
		Delay time.Duration
		// Exhausted: it has used up its attempts. With VerdictRetry, there is no place for dead letters.
		Exhausted bool
		// Context has the values of the call's context, as Config.Around made it, and does not end; nil where there is no Around.
		Context context.Context
	}

	// Skipped: the handler returned Skip; the message is acked.
	Skipped struct {
		Message *Message
		Reason  string
	}

	// DeadLettered: a dead letter was published and confirmed, and its message acked.
	DeadLettered struct {
		Failed
		Topic string
		Took  time.Duration
	}

	// DeadLetterDelayed: a dead letter could not be published; its message stays, and it is tried again after Delay. Refused: the
	// broker will not take it while both are as they are; somebody may make the topic, or raise a limit.
	DeadLetterDelayed struct {
		Message *Message
		Err     error
		Refused bool
		Delay   time.Duration
	}

	// RetryPublished: a message that failed was published to a retry topic and confirmed, and acked here.
	RetryPublished struct {
		Failed
		Topic string
	}

	// RetryPublishFailed: a message could not be published to a retry topic; it waits in this process.
	RetryPublishFailed struct {
		Message *Message
		Topic   string
		Err     error
	}

	// DestinationMissing: there is no topic, or no stream, for dead letters or for a retry step, or it could not be made. It is
	// looked for until it is there.
	DestinationMissing struct {
		Topic string
		Err   error
	}

	// DestinationLossy: the topic for dead letters, or for a retry step, does not keep what is published to it for as long as it has
	// to wait there. What is removed meanwhile is lost. It is looked at once, when the consumer starts.
	DestinationLossy struct {
		Topic string
		Err   error
	}

	// DestinationFound: one that was missing is there by now; or it was Created.
	DestinationFound struct {
		Topic   string
		Created bool
	}

	// LaneFull: so many messages wait in the lanes of a topic and partition that one has reached Lane.Limit: its first message fails
	// again and again, or takes long. What becomes of it, and of what comes after it, is Lane.Full's.
	LaneFull struct {
		Topic     string
		Partition int32
		Waiting   int
		// First waits right behind the one that keeps them waiting; nil: that has just ended.
		First *Message
	}

	// Unordered: a message without a key came, the first since Run began, in an order by key: it and those like it are handled in no
	// order. Stats.Unordered counts them.
	Unordered struct{ Message *Message }

	// GivenBack: N messages that no handler finished went back to the broker; why is "revoked", "drain", "shutdown" or "lost".
	GivenBack struct {
		N      int
		Reason string
	}

	// Lost: settles of N messages came too late, or failed; those messages come again. An adapter that cannot tell which are told of
	// as all that it settled at once. 0: some had been settled before, which is a fault of this program.
	Lost struct {
		N   int
		Err error
	}

	// Scaled: the pool changed its size.
	Scaled struct{ pool.Decision }

	// Stuck: a handler did not return although its context has ended: after Config.Timeout and StuckAfter, or at the end of the
	// drain, where the ten that ran the longest are told.
	Stuck struct {
		Message *Message
		// For is how long it has been running.
		For time.Duration
		// Stack is its goroutine's; empty where it could not be had.
		Stack string
		// Replaced: its worker and message were replaced. False: Config.MaxStuck was reached, or the consumer ends; it keeps both.
		Replaced bool
		// Context is as in Failed; nil, too, where the End of its call is nil, and at the end of the drain.
		Context context.Context
	}

	// Panicked: a callback panicked that is no part of a handler's call, and what it was called for went on without it. In is which
	// one: "Priority.Of" (the message is of the last level), "DeadLetter.HandlerOf" (the message is for no handler), "End" of an
	// Around, or "Defer", whose until it was (the message waits for its time).
	Panicked struct {
		In  string
		Err *PanicError
	}

	// Drained: Run is about to return.
	Drained struct {
		Took time.Duration
		// Stuck handlers that never returned.
		Stuck int
	}
)

func (StateChanged) Name() string       { return "state" }
func (e SourceEvent) Name() string      { return "source_" + e.Kind.String() }
func (Operated) Name() string           { return "operated" }
func (Handled) Name() string            { return "handled" }
func (Failed) Name() string             { return "failed" }
func (Skipped) Name() string            { return "skipped" }
func (DeadLettered) Name() string       { return "dead_lettered" }
func (DeadLetterDelayed) Name() string  { return "dead_letter_delayed" }
func (RetryPublished) Name() string     { return "retry_published" }
func (RetryPublishFailed) Name() string { return "retry_publish_failed" }
func (DestinationMissing) Name() string { return "destination_missing" }
func (DestinationLossy) Name() string   { return "destination_lossy" }
func (DestinationFound) Name() string   { return "destination_found" }
func (LaneFull) Name() string           { return "lane_full" }
func (Unordered) Name() string          { return "unordered" }
func (GivenBack) Name() string          { return "given_back" }
func (Lost) Name() string               { return "lost" }
func (Scaled) Name() string             { return "scaled" }
func (Stuck) Name() string              { return "stuck" }
func (Panicked) Name() string           { return "panicked" }
func (Drained) Name() string            { return "drained" }
