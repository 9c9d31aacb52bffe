package consumer

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/conftag"
)

// maxChunk is what the run word has room for, and the tag of Config.Chunk.
const maxChunk = 1 << 16

// Validate reports all that is wrong at once, as *broker.Findings. New does so, too.
func (c Config) Validate() error {
	f := &broker.Findings{Of: "consumer config"}
	conftag.Check(f, c)
	c = c.withDefaults()
	f.Check(c.Name == headerText(strings.TrimSpace(c.Name), len(c.Name)), "Name",
		"is %q, want text on one line, with no blanks at its ends: it goes into headers and IDs", c.Name)
	c.validateStuck(f)
	c.validateInputs(f)
	c.validateSizes(f)
	c.validateBatch(f)
	c.validateOrder(f)
	b := c.Retry.Backoff
	f.Check(b.Max >= b.Initial, "Retry.Backoff.Max",
		"is %v, below %v, %v", b.Max, broker.Field("Retry.Backoff.Initial"), b.Initial)
	reads := c.inputs()
	c.Retry.Topics.validate(f, reads)
	if t := c.Retry.Topics; t != nil {
		reads = append(slices.Clone(reads), Input{Source: t.Source})
	}
	c.DeadLetter.validate(f, reads)
	f.Check(c.Output == nil || !isNil(c.Output), "Output", nilText, c.Output)
	for i, o := range c.Observers {
		f.Check(o != nil, broker.Field(fmt.Sprintf("Observers[%d]", i)), "is nil")
	}
	c.validateTimes(f)
	return f.Err()
}

// validateInputs: there is something to read, and to choose from.
func (c Config) validateInputs(f *broker.Findings) {
	if len(c.Sources) == 0 {
		checkGiven(f, "Source", c.Source)
	}
	f.Check(c.Source == nil || len(c.Sources) == 0, "Sources", "is set, and so is %v: set one", broker.Field("Source"))
	for i, in := range c.Sources {
		at := broker.Field(fmt.Sprintf("Sources[%d].Source", i))
		checkGiven(f, at, in.Source)
		checkOwn(f, at, in.Source, c.Sources[:i])
	}
	if p := c.Priority; p != nil {
		f.Check(p.Of != nil, "Priority.Of", "is required")
		f.Check(len(p.Levels) > 1, "Priority.Levels", "has %d weights, want at least 2", len(p.Levels))
		for i, w := range p.Levels {
			f.Check(w > 0, broker.Field(fmt.Sprintf("Priority.Levels[%d]", i)), "is %d, want at least 1", w)
		}
	}
	f.Check(!c.Strict || len(c.Sources) > 1 || c.Priority != nil, "Strict",
		"is set, and there is neither a %v nor more than one of %v: nothing goes before anything", broker.Field("Priority"),
		broker.Field("Sources"))
}

// checkOwn: none of the inputs before has the same source.
func checkOwn(f *broker.Findings, at broker.Field, s broker.Source, before []Input) {
	same := func(in Input) bool { return in.Source == s }
	f.Check(!isPointer(s) || !slices.ContainsFunc(before, same), at, "is given twice: a source is opened once")
}

// checkGiven: something is there, and not the nil that an adapter returns beside an error.
func checkGiven(f *broker.Findings, at broker.Field, v any) {
	switch {
	case v == nil:
		f.Add(at, "is required")
	case isNil(v):
		f.Add(at, nilText, v)
	}
}

const nilText = "is a nil %T: see the error that it came with"

// isNil says whether nothing is there, or a pointer to nothing.
func isNil(v any) bool { return v == nil || isPointer(v) && reflect.ValueOf(v).IsNil() }

func isPointer(v any) bool { return v != nil && reflect.TypeOf(v).Kind() == reflect.Pointer }

// validateStuck: nothing is said of stuck handlers where none can be. The defaults may stand there: of Config.WithDefaults.
func (c Config) validateStuck(f *broker.Findings) {
	const none = "is set and %v is not: a handler without a timeout is never stuck"
	f.Check(c.Timeout != 0 || c.StuckAfter == DefaultStuckAfter, "StuckAfter", none, broker.Field("Timeout"))
	f.Check(c.Timeout != 0 || c.MaxStuck == defaultMaxStuck, "MaxStuck", none, broker.Field("Timeout"))
}

// validateTimes: no time is so short that its unit was forgotten.
func (c Config) validateTimes(f *broker.Findings) {
	f.Check(c.DrainTimeout < 0 || c.DrainTimeout >= time.Millisecond, "DrainTimeout",
		"is %v, want at least 1ms, or a negative one for none", c.DrainTimeout)
}

// validateSizes: all workers can be busy.
func (c Config) validateSizes(f *broker.Findings) {
	const most = broker.Field("Pool.Max")
	f.Check(c.Pool.Max >= c.Pool.Min, most, "is %d, below %v, %d", c.Pool.Max, broker.Field("Pool.Min"), c.Pool.Min)
	f.Check(c.Budget.Messages >= c.Pool.Max, "Budget.Messages",
		"is %d, below %v, %d: workers could never all be busy", c.Budget.Messages, most, c.Pool.Max)
	if share := c.mainBudget().Messages; share < c.Budget.Messages && c.Budget.Messages >= c.Pool.Max {
		f.Check(share >= c.Pool.Max, "Budget.Messages",
			"is %d, of which each source has %d, below %v, %d", c.Budget.Messages, share, most, c.Pool.Max)
	}
}

// validateBatch: there is one kind of handler, and a batch can be full.
func (c Config) validateBatch(f *broker.Findings) {
	b := c.Batch
	if b == nil {
		f.Check(c.Handler != nil, "Handler", "is required")
		return
	}
	f.Check(c.Handler == nil, "Batch", "is set, and so is %v: set one", broker.Field("Handler"))
	f.Check(b.Handler != nil, "Batch.Handler", "is required")
	f.Check(!b.ByKey || c.Order == OrderNone || b.Size <= c.Lane.Limit, "Batch.Size",
		"is %d, above %v, %d: a batch might never be full", b.Size, broker.Field("Lane.Limit"), c.Lane.Limit)
	share := c.mainBudget().Messages / 2
	f.Check(b.Size <= share || c.Budget.Messages < c.Pool.Max, "Batch.Size",
		"is %d, above half of a source's budget, %d: a batch might never be full", b.Size, share)
}

// validateOrder: what an order excludes is not asked for.
func (c Config) validateOrder(f *broker.Findings) {
	f.Check(c.Lane.Full != LaneDeadLetter || c.DeadLetter != nil, "Lane.Full",
		"is %v, and there is no %v", c.Lane.Full, broker.Field("DeadLetter"))
	share := max(2, c.mainBudget().Messages) // of 1 nothing ever waits
	f.Check(c.Order == OrderNone || c.Lane.Full != LaneDeadLetter || c.Lane.Limit < share || c.Budget.Messages < c.Pool.Max,
		"Lane.Limit", "is %d, not below a source's budget, %d: no lane would ever be full", c.Lane.Limit, share)
	f.Check(c.Order == OrderNone || c.Retry.Topics == nil, "Order",
		"is %v, and %v is set: what waits there has lost its place. Remove %[2]v to keep the order, or %[3]v to keep them",
		c.Order, broker.Field("Retry.Topics"), broker.Field("Order"))
}

func (t *RetryTopics) validate(f *broker.Findings, inputs []Input) {
	if t == nil {
		return
	}
	checkGiven(f, "Retry.Topics.Publisher", t.Publisher)
	checkGiven(f, "Retry.Topics.Source", t.Source)
	checkOwn(f, "Retry.Topics.Source", t.Source, inputs)
	f.Check(len(t.Steps) > 0, "Retry.Topics.Steps", "is empty")
	before := time.Duration(0)
	for i, s := range t.Steps {
		step := broker.Field(fmt.Sprintf("Retry.Topics.Steps[%d]", i))
		validateTarget(f, step+".Topic", s.Topic)
		if j := slices.IndexFunc(t.Steps, func(o RetryStep) bool { return o.Topic == s.Topic }); j < i && s.Topic != "" {
			f.Add(step+".Topic", "is %q, and so is %v: messages of a topic wait equally long", s.Topic,
				broker.Field(fmt.Sprintf("Retry.Topics.Steps[%d].Topic", j)))
		}
		if readBack(inputs, t.Publisher, s.Topic) {
			f.Add(step+".Topic", "is %q, which the consumer itself reads: its messages would not wait", s.Topic)
		}
		f.Check(s.Delay > before, step+".Delay", "is %v, want more than %v: they stand by increasing delay", s.Delay, before)
		before = max(before, s.Delay)
	}
}

// validateTarget: something can be published there.
func validateTarget(f *broker.Findings, at broker.Field, topic string) {
	f.Check(topic != "", at, "is required")
	if err := broker.CheckDestination(topic); err != nil {
		f.Add(at, "is refused: %v", err)
	}
}

func (d *DeadLetter) validate(f *broker.Findings, inputs []Input) {
	if d == nil {
		return
	}
	checkGiven(f, "DeadLetter.Publisher", d.Publisher)
	d.validateTopic(f, "DeadLetter.Topic", d.Topic, inputs)
	for i, r := range d.Routes {
		d.validateRoute(f, broker.Field(fmt.Sprintf("DeadLetter.Routes[%d]", i)), r, d.Routes[:i], inputs)
	}
	if _, can := d.Publisher.(broker.Destinations); d.Create && !isNil(d.Publisher) {
		f.Check(can, "DeadLetter.Create",
			"is set, and the %v, %T, cannot make topics", broker.Field("DeadLetter.Publisher"), d.Publisher)
	}
}

// validateRoute: it takes what there is, and what the ones before it leave.
func (d *DeadLetter) validateRoute(f *broker.Findings, at broker.Field, r LetterRoute, before []LetterRoute, inputs []Input) {
	d.validateTopic(f, at+".Topic", r.Topic, inputs)
	switch classes := FailureClasses(); {
	case r.Class == "" && r.Handler == "":
		f.Add(at, "has neither a class nor a handler: it would take what %v is for", broker.Field("DeadLetter.Topic"))
	case r.Class != "" && !slices.Contains(classes, r.Class):
		f.Add(at+".Class", "is %q, want one of %v", r.Class, classes)
	case !r.Reached(before):
		f.Add(at, "is never taken: the routes before it take all that it would")
	}
	f.Check(r.Handler == "" || d.HandlerOf != nil, at+".Handler",
		"is %q, and %v is not set", r.Handler, broker.Field("DeadLetter.HandlerOf"))
}

// validateTopic: a topic that dead letters go to is not the consumer's own.
func (d *DeadLetter) validateTopic(f *broker.Findings, at broker.Field, topic string, inputs []Input) {
	validateTarget(f, at, topic)
	if readBack(inputs, d.Publisher, topic) {
		f.Add(at, "is %q, which the consumer itself reads: dead letters would be handled again, and again", topic)
	}
}

// readBack says whether one of inputs would read what p publishes to a topic.
func readBack(inputs []Input, p broker.Publisher, topic string) bool {
	return !isNil(p) && slices.ContainsFunc(inputs, func(in Input) bool {
		s, ok := in.Source.(broker.SelfReader)
		return ok && !isNil(s) && s.Reads(broker.Innermost(p), topic)
	})
}
