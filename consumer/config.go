package consumer

import (
	"cmp"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/pool"
	"github.com/rs/zerolog"
)

// Config is what a Consumer is made of. Source (or Sources) and Handler (or Batch) are required; everything else has a default
// that suits most services. The tags are the keys of the program's file, and what may be set.
type Config struct {
	// Name stands in logs, metrics and dead letters, and begins the IDs of what is published. On one line, with no blanks at its
	// ends. Defaults to "consumer".
	Name string `yaml:"-"`
	// Source is where messages come from: an adapter's, such as natsbroker.NewSource. Run opens and closes it. Required, unless
	// there are Sources.
	Source broker.Source `yaml:"-"`
	// Sources are several sources with weights, instead of Source: they share the workers, and each has an equal part of the budget.
	// Retry.Topics, Order and everything else hold for all of them. Defaults to none.
	Sources []Input `yaml:"-"`
	// Priority tells important messages from others. Defaults to none: those of a source are handled in the order in which they
	// come.
	Priority *Priority `yaml:"-"`
	// Strict takes from Sources, and within each from the levels of Priority, in their order instead of by weight: what comes later
	// waits as long as something of what comes before is here, but never for more than about a hundred hand-offs in a row. Only with
	// Sources or Priority. Defaults to false.
	Strict bool `yaml:"-"`
	// Handler handles each message. Required, unless there is a Batch.
	Handler Handler `yaml:"-"`
	// Batch hands messages over in batches, to a handler of its own. Defaults to nil: one by one.
	Batch *Batch `yaml:"-"`
	// Around is called before each handler call, of a batch, too, and is told what became of it: for traces. Package
	// consumer/tracing has one. Defaults to nil: nobody is told, and it costs nothing.
	Around Around `yaml:"-"`

	// Order says which messages are handled one after the other. Everything else is handled in parallel. Defaults to OrderNone.
	Order Order `yaml:"order" want:"none|key|partition"`
	// Lane bounds what waits for its turn in an order. Not used with OrderNone.
	Lane Lane `yaml:"lane"`

	// Pool sizes the workers.
	Pool Pool `yaml:"-"`
	// Output publishes what handlers emit (Emit), where it is no part of the ack: the source is not atomic (broker.Traits), or
	// Output goes to another cluster than the source reads, as in a bridge. The caller closes it. Set it where handlers emit and
	// the source is not atomic, or may not be. Defaults to nil: only an atomic source can emit.
	Output broker.Publisher `yaml:"-"`
	// Retry says what becomes of a failed message.
	Retry Retry `yaml:"-"`
	// DeadLetter says where messages go that are given up. Nil: none is given up; what has used up its attempts is retried for ever
	// at the longest backoff, and reported each time.
	DeadLetter *DeadLetter `yaml:"dead_letter"`

	// Timeout is how long a handler may take before its context ends with ErrTimeout. Measured by a scan: never early, late by up to
	// 20 ms. The context's Deadline says when, at most as much too early; a context that was asked for it ends when its handler
	// returns. 0 means no limit. Defaults to no limit.
	Timeout time.Duration `yaml:"timeout" want:"0 or 1ms.."`
	// StuckAfter is how long after Timeout a handler that did not return is called stuck: its stack is reported, its message
	// retried, and its worker replaced. Its late result is void. With an Order only the worker is replaced: what comes after the
	// message waits until the handler returns, and its result counts. Only with Timeout. Defaults to 10 s.
	StuckAfter time.Duration `yaml:"stuck_after" want:"1ms.."`
	// MaxStuck is how many stuck handlers are replaced. With more the consumer is unhealthy and replaces no further ones, for each
	// holds a goroutine and what it refers to. Only with Timeout. Defaults to 16.
	MaxStuck int `yaml:"max_stuck" want:"1.."`
	// DrainTimeout is how long Run waits for running handlers after its context has ended, before it ends theirs. Choose it below
	// what the supervisor grants before it kills, with CancelGrace and CloseTimeout beside it (Kubernetes grants 30 s). Defaults to
	// 20 s; negative means not at all.
	DrainTimeout time.Duration `yaml:"-"`
	// CancelGrace is how long handlers get to return after their contexts ended at the end of a drain. Defaults to 1 s.
	CancelGrace time.Duration `yaml:"-" want:"1ms.."`
	// CloseTimeout is how long the sources get for their last commits, when the handlers have returned and the dead letters are
	// published, or their time for that (DrainTimeout and CancelGrace) is over. Defaults to 5 s.
	CloseTimeout time.Duration `yaml:"-" want:"1ms.."`
	// OpenTimeout is how long Run tries at start to reach the broker, and waits for a topic or stream that is missing there, before
	// it fails. 0 means for ever. Defaults to 0.
	OpenTimeout time.Duration `yaml:"open_timeout" want:"0 or 1ms.."`

	// Budget bounds what is between broker and ack. Within it the consumer holds only what its workers handle in about half a
	// second, and two messages for each worker there may be, so that replicas share what is left; and besides these what waits for
	// no worker: for its next attempt, its dead letter, and with an Order behind another one of its key or partition. With an Order
	// and a backlog that may be all of the budget: lower it where it is too much. Messages defaults to 4096, or to 4 × Pool.Max if
	// that is more; it must not be below Pool.Max. Bytes defaults to 64 MiB.
	Budget broker.Budget `yaml:"budget"`
	// Chunk is the most messages taken from the source at once. Change it only with a benchmark. Defaults to 128.
	Chunk int `yaml:"-" want:"1..65536"`
	// MaxMessageBytes is the largest payload (key and value) that a handler is given; larger ones are dead-lettered as ErrTooLarge
	// without a handler run. Defaults to no limit.
	MaxMessageBytes int `yaml:"max_message_bytes" want:"0.."`
	// MaxHeaderBytes is the same for a message's headers: the names and values of all of them. Set it where others than you produce
	// the messages. Defaults to no limit.
	MaxHeaderBytes int `yaml:"max_header_bytes" want:"0.."`

	// Logger gets one event per thing that happened, with stable names (see Event). SlogLogger makes one of a handler of log/slog.
	// The zero Logger writes what may need somebody (warn and above) to stderr as text: a program that says nothing while it cannot
	// reach its broker tells nobody why. zerolog.Nop() writes nothing. Defaults to that of stderr.
	Logger zerolog.Logger `yaml:"-"`
	// Observers are told the same things, for metrics and tests.
	Observers []Observer `yaml:"-"`
}

// Pool sizes the workers. See package pool.
type Pool struct {
	// Min workers are always there. Defaults to 1.
	Min int `yaml:"min" want:"1.."`
	// Max workers at most. Raise it for handlers that mostly wait, as long as what they wait for can take it. Defaults to 64, or
	// Min if that is more.
	Max int `yaml:"max" want:"1.."`
	// IdleTimeout is after how long without work a worker reports idle. Defaults to 1 s.
	IdleTimeout time.Duration `yaml:"idle_timeout" want:">0"`
	// Policy decides on the number. Defaults to pool.ReportStatus.
	Policy pool.Policy `yaml:"-"`
	// Gauge tells the manager how short memory and processors are, and it stays within them: pool.RuntimeGauge() minds limits of
	// memory and handlers that wait for a core. Set it for handlers that compute. Defaults to none.
	Gauge func() pool.Pressure `yaml:"-"`
}

// Retry says what becomes of a message whose handler failed.
type Retry struct {
	// MaxAttempts is how many runs a message gets, all told, before it is dead-lettered; where the last one was Overloaded, a
	// hundred if that is more. Defaults to 5.
	MaxAttempts int `yaml:"max_attempts" want:"1.."`
	// GiveUpAfter is how long a message is tried, counted from its first failure: when the next attempt would come later than that,
	// it is given up as if its attempts were used up, whichever comes first. Set it where a late result is worth nothing, and
	// MaxAttempts high where time alone shall decide. One that was in a batch with others is tried by itself once more, when that
	// time is over. The first failure is known as long as the message stays in this process or goes through Topics; another process
	// that takes over counts anew. Messages wait here for their attempts then, not at the broker. Defaults to 0: there is no such
	// end.
	GiveUpAfter time.Duration `yaml:"give_up_after" want:"1ms.."`
	// Backoff is the wait before the next attempt.
	Backoff Backoff `yaml:"backoff"`
	// Topics hold messages whose next attempt is far away, or for which there is no room. Only for brokers that keep no delays
	// (Kafka). Nil: all wait in this process.
	Topics *RetryTopics `yaml:"-"`
}

// RetryTopics are where failed messages wait that would stand in the way here. A message that waits in this process for its next
// attempt stays claimed, in the budget, and in its partition's window of unfinished offsets. It is published to a retry topic
// instead, confirmed, and acked, when its delay is at least that of the first step, or when half of the window or of the budget
// is in use by such messages; unless its delay is longer than that of the last step, or there is room here and GiveUpAfter
// would be over before it came from there. It keeps its payload, key and headers, and comes again, never before its delay and
// late by up to a twentieth of the step's (at most 1 s), as a message of its original topic, with its runs. Among the messages of
// a partition it has lost its place.
//
// Where the publish fails the message waits here after all.
type RetryTopics struct {
	// Steps are the topics, by increasing delay. Required.
	Steps []RetryStep `yaml:"-"`
	// Publisher writes to them. The caller closes it. Required.
	Publisher broker.Publisher `yaml:"-"`
	// Source reads all of them, and nothing else. On Kafka it has a group of its own, shared by all processes of the consumer. Run
	// opens and closes it, and refuses one that can let nothing wait: it is a broker.Holder, or has a Traits.NativeDelay. Its Open
	// should not wait for topics that do not exist (kafkabroker.Config.Missing is "run"): the others have been opened, and would
	// wait with it. It gets an eighth of the budget. Required.
	Source broker.Source `yaml:"-"`
}

// A RetryStep is a topic whose messages all wait for the same time, so that the first is always the next one due.
type RetryStep struct {
	Topic string        `yaml:"topic"`
	Delay time.Duration `yaml:"delay"`
}

// Backoff grows from Initial by Factor with each attempt up to Max; of that a random share of up to Jitter is taken off, so that
// what failed together does not come again together.
type Backoff struct {
	// Initial wait. Defaults to 200 ms.
	Initial time.Duration `yaml:"initial" want:"1ms.."`
	// Max wait. Defaults to 30 s.
	Max time.Duration `yaml:"max" want:"1ms.."`
	// Factor per attempt, at least 1. Defaults to 2.
	Factor float64 `yaml:"factor" want:"1..100"`
	// Jitter is the largest share taken off, 0..1. Defaults to 0.2; negative means none.
	Jitter float64 `yaml:"jitter" want:"..1"`
}

// DeadLetter says where messages go that are given up: published and confirmed first, acked afterwards.
type DeadLetter struct {
	// Publisher writes them; of the same broker or another. One of your own around another, for headers that a tool of yours reads,
	// is to be a broker.Wrapper and a broker.Destinations: else letters are in no transaction, and neither the look for the topic at
	// the start nor the check that the consumer does not read it is made. The example (OwnHeaders) is one. The caller closes it.
	// Required.
	Publisher broker.Publisher `yaml:"-"`
	// Topic (or subject) to publish to, where no route says otherwise. Required.
	Topic string `yaml:"to"`
	// Routes lead some to topics of their own: the first that takes a message has it. One that could never take any is
	// refused. A topic that is down holds only its own: they stay unacked, and are tried again. Defaults to none.
	Routes []LetterRoute `yaml:"routes"`
	// HandlerOf names the handler that a message is for, "" for none: from the message alone, since the handler may have
	// panicked, be stuck, or never have been called. handlers.Router.NameOf does that. It is called by several goroutines,
	// and must be quick. A panic (Panicked) names none. Required where a route has a Handler. Defaults to nil.
	HandlerOf func(*Message) string `yaml:"-"`
	// Create makes each topic, or a stream for each subject, where there is none when Run begins: it keeps its messages for
	// ever. The Publisher has to be a broker.Destinations. Defaults to false.
	Create bool `yaml:"create"`
	// Concurrency is how many publishes to each topic are under way at once, each of all letters that wait there, up to 512. Raise
	// it where a publish takes long. Defaults to 4.
	Concurrency int `yaml:"concurrency" want:"1.."`
	// Headers of other systems to write beside our own, so that their tools understand the letters. Defaults to none.
	Headers []HeaderStyle `yaml:"headers" want:"spring|connect"`
}

// A HeaderStyle is how another system describes a dead letter in its headers.
type HeaderStyle string

const (
	// SpringHeaders are those of Spring for Apache Kafka (kafka_dlt-original-topic and so on). Numbers are binary, so they are for
	// Kafka only.
	SpringHeaders HeaderStyle = "spring"
	// ConnectHeaders are those of Kafka Connect (__connect.errors.topic and so on).
	ConnectHeaders HeaderStyle = "connect"
)

// WithDefaults is c with the defaults of what it does not set, as New has it.
func (c Config) WithDefaults() Config { return c.withDefaults() }

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, defaultName)
	c.Logger = loggerOr(c.Logger)
	c.Pool.Min = cmp.Or(c.Pool.Min, 1)
	c.Pool.Max = cmp.Or(c.Pool.Max, max(DefaultMaxWorkers, c.Pool.Min))
	c.Retry.MaxAttempts = cmp.Or(c.Retry.MaxAttempts, 5)
	c.Retry.Backoff = c.Retry.Backoff.withDefaults()
	c.StuckAfter = cmp.Or(c.StuckAfter, DefaultStuckAfter)
	c.MaxStuck = cmp.Or(c.MaxStuck, defaultMaxStuck)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 20*time.Second)
	c.CancelGrace = cmp.Or(c.CancelGrace, time.Second)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 5*time.Second)
	c.Budget.Messages = cmp.Or(c.Budget.Messages, max(4096, 4*c.Pool.Max))
	c.Budget.Bytes = cmp.Or(c.Budget.Bytes, 64<<20)
	c.Chunk = cmp.Or(c.Chunk, 128)
	c.Batch = c.Batch.withDefaults()
	c.Order = cmp.Or(c.Order, OrderNone)
	c.Lane.Full = cmp.Or(c.Lane.Full, LaneBlock)
	c.Lane.Limit = cmp.Or(c.Lane.Limit, max(1, min(c.Budget.Messages/laneShare, c.mainBudget().Messages/2)))
	if c.DeadLetter != nil {
		d := *c.DeadLetter
		d.Concurrency = cmp.Or(d.Concurrency, defaultConcurrency)
		c.DeadLetter = &d
	}
	return c
}

func (b Backoff) withDefaults() Backoff {
	b.Initial = cmp.Or(b.Initial, 200*time.Millisecond)
	b.Max = cmp.Or(b.Max, max(30*time.Second, b.Initial))
	b.Factor = cmp.Or(b.Factor, 2)
	b.Jitter = max(0, cmp.Or(b.Jitter, 0.2))
	return b
}

// Defaults of Config.
const (
	DefaultMaxWorkers = 64
	DefaultStuckAfter = 10 * time.Second
)

// defaultMaxStuck is that of Config.MaxStuck.
const defaultMaxStuck = 16

// defaultName is of a consumer that has no name of its own.
const defaultName = "consumer"

// who names the consumer, in each of its processes, among all that may read the same messages: by its name and its groups. It
// begins the IDs of what is published: where two groups make something of one message and call it the same, a broker that drops
// repeats keeps what the first of them made.
func (c *Config) who() string {
	who := c.Name
	for _, in := range c.inputs() {
		if d, ok := in.Source.(broker.Describer); ok {
			who += "/" + d.Describe().Readers()
		}
	}
	return who
}

// title begins the consumer's errors.
func (c Config) title() string {
	if c.Name == defaultName {
		return defaultName
	}
	return "consumer " + c.Name
}
