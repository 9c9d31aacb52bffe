package brokertest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// With Traits.Atomic every ack of every case emits: one output for each message, whose value begins with the message's id and has
// the name of the process behind it. At the end of each case nobody has two, whatever the case did. The cases here ask for more.

// An acker acks for a member: by Ack, and with Traits.Atomic by AckEmitting.
type acker struct {
	src    broker.Source // with Traits.Atomic a broker.Emitter
	name   string        // the member's
	atomic bool
	topic  string // where outputs go
}

// ack acks messages of one claim. The tokens are written over afterwards, as the engine does.
func (a *acker) ack(ms []*broker.Message) error {
	if !a.atomic {
		tokens := make([]uint64, len(ms))
		for i, msg := range ms {
			tokens[i] = msg.Token
		}
		defer clear(tokens)
		return a.src.Ack(ms[0].Claim, tokens)
	}
	es := make([]broker.Emission, len(ms))
	for i, msg := range ms {
		es[i] = broker.Emission{Tokens: []uint64{msg.Token}, Outs: []broker.Outgoing{a.output(msg, nil)}}
	}
	return a.emit(ms[0].Claim, es)
}

// emit is AckEmitting. What was given is written over afterwards, but for the outputs.
func (a *acker) emit(c *broker.Claim, es []broker.Emission) error {
	err := a.src.(broker.Emitter).AckEmitting(c, es)
	for i := range es {
		clear(es[i].Tokens)
	}
	clear(es)
	return err
}

// output is a message's, by which it is known who acked it.
func (a *acker) output(msg *broker.Message, key []byte) broker.Outgoing {
	return broker.Outgoing{Topic: a.topic, Key: key, Value: []byte(id(msg) + "." + a.name)}
}

func needsAtomic(h *Harness) string {
	if !h.Traits.Atomic {
		return "Traits.Atomic is not set: outputs are no part of a commit"
	}
	return needsRedelivery(h)
}

// outputs are the values of what is stored, by the id that they begin with.
func outputs(w *world) map[string][]string {
	of := make(map[string][]string)
	for _, m := range w.sys.Stored(w, w.sys.Outputs) {
		name, _, _ := strings.Cut(string(m.Value), ".")
		of[name] = append(of[name], string(m.Value))
	}
	return of
}

// noOutputTwice holds in every case: what was acked twice, by whoever, has one output.
func noOutputTwice(w *world) {
	w.Helper()
	if !w.h.Traits.Atomic {
		return
	}
	var twice []string
	for _, values := range outputs(w) {
		if len(values) > 1 {
			twice = append(twice, fmt.Sprint(values))
		}
	}
	slices.Sort(twice)
	if len(twice) > 0 {
		w.Errorf("%d messages have more than one output: %v", len(twice), twice[:min(len(twice), 5)])
	}
}

// eachHasOutput waits until every message has its output, and fails where one has none.
func (w *world) eachHasOutput(ids []string) {
	w.Helper()
	var without []string
	for end := time.Now().Add(w.h.patience()); ; time.Sleep(poll) {
		of := outputs(w)
		without = slices.DeleteFunc(slices.Clone(ids), func(name string) bool { return len(of[name]) > 0 })
		if len(without) == 0 {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("%d of %d messages are settled and have no output: %v%s", len(without), len(ids), without[:min(len(without), 5)],
				w.story(without))
		}
	}
}

// outputsOnce proves the plain way: the outputs of what was acked are stored, each once, several of one message too, and those of
// what was given back are not.
func outputsOnce(w *world) {
	m := w.join()
	ids := w.produce(0, 60)
	ms := m.take(60)
	for _, msg := range ms[:20] {
		m.release([]*broker.Message{msg}, true)
		two := []broker.Outgoing{m.acks.output(msg, nil), {Topic: w.sys.Outputs, Value: []byte("second-" + id(msg) + ".x")}}
		if err := m.acks.emit(msg.Claim, []broker.Emission{{Tokens: []uint64{msg.Token}, Outs: two}}); err != nil {
			w.Errorf("AckEmitting: %v", err)
		}
	}
	m.mustNack(0, 1, ms[20:40]...)
	m.mustAck(ms[40:]...)
	m.mustAck(m.take(20)...)
	w.settled()
	for _, name := range ids[:20] {
		ids = append(ids, "second-"+name)
	}
	w.eachHasOutput(ids)
}

// outputsTogether proves that messages of one emission count as handled together, with all that was made of them; also where one
// of them was settled before, for which the call changes nothing.
func outputsTogether(w *world) {
	m := w.join()
	ids := w.produce(0, 16)
	ms := m.take(16)
	for i := 0; i < 12; i += 4 {
		e := broker.Emission{}
		m.release(ms[i:i+4], true)
		for _, msg := range ms[i : i+4] {
			e.Tokens = append(e.Tokens, msg.Token)
			e.Outs = append(e.Outs, m.acks.output(msg, nil))
		}
		if err := m.acks.emit(ms[i].Claim, []broker.Emission{e}); err != nil {
			w.Errorf("AckEmitting of four: %v", err)
		}
	}
	m.mustAck(ms[12])
	m.release(ms[13:], true)
	e := broker.Emission{Tokens: []uint64{ms[12].Token}}
	for _, msg := range ms[13:] {
		e.Tokens = append(e.Tokens, msg.Token)
		e.Outs = append(e.Outs, m.acks.output(msg, nil))
	}
	if err := m.acks.emit(ms[12].Claim, []broker.Emission{e}); !errors.Is(err, broker.ErrSettled) {
		w.Errorf("AckEmitting of four, of which one was settled before: %v, want %v", err, broker.ErrSettled)
	}
	w.settled()
	w.eachHasOutput(ids)
}

// outputsInOrder proves that outputs of a partition stand in the order of the acks, which need not be that of the messages; where
// commits fail now and then, too.
func outputsInOrder(w *world) {
	const n = 200
	m := w.join(budget(n, 1<<20))
	ids := w.produce(0, n)
	ms := m.take(n)
	rnd := rand.New(rand.NewPCG(w.h.Seed, 3))
	rnd.Shuffle(n, func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	for i, msg := range ms {
		m.release([]*broker.Message{msg}, true)
		if err := m.acks.emit(msg.Claim, []broker.Emission{{Tokens: []uint64{msg.Token},
			Outs: []broker.Outgoing{m.acks.output(msg, []byte("key"))}}}); err != nil {
			w.Errorf("AckEmitting: %v", err)
		}
		if i%50 == 49 {
			if w.sys.FailSettles != nil {
				w.sys.FailSettles(w, 1)
			}
			time.Sleep(w.moment() / 4)
		}
	}
	w.settled()
	w.eachHasOutput(ids)
	for i, stored := range w.sys.Stored(w, w.sys.Outputs) {
		if name, _, _ := strings.Cut(string(stored.Value), "."); i < n && name != id(ms[i]) {
			w.Fatalf("output %d of the partition is of %s, and ack %d was of %s", i, name, i, id(ms[i]))
		}
	}
}

// outputsInBudget proves that outputs count in the budget as long as they are not stored, and no longer: while nothing can be
// stored there is soon no room for more messages, and once it can, several budgets full of outputs go through.
func outputsInBudget(w *world) {
	w.need("FailSettles", w.sys.FailSettles != nil)
	const limit, each, n = 20_000, 2000, 60
	m := w.join(budget(1, limit))
	stop := m.handle(func(msg *broker.Message) {
		m.release([]*broker.Message{msg}, true)
		o := m.acks.output(msg, nil)
		o.Value = append(o.Value, bytes.Repeat([]byte{'.'}, each)...)
		if err := m.acks.emit(msg.Claim, []broker.Emission{{Tokens: []uint64{msg.Token}, Outs: []broker.Outgoing{o}}}); err != nil {
			m.fail("AckEmitting: %v", err)
		}
	})
	defer stop()
	// One by one: what is prefetched before there are outputs goes through.
	ids := w.produce(0, 1)
	handled := func() bool { return w.books.Open() == 0 }
	w.eventually("the first message was acked", handled)
	w.sys.FailSettles(w, 1<<20)
	full := false
	for i := 0; i < n && !full; i++ {
		ids = append(ids, w.produce(0, 1)...)
		for end := time.Now().Add(w.lease); !handled() && !full; time.Sleep(poll) {
			full = time.Now().After(end)
		}
	}
	if !full {
		w.Errorf("%d messages were acked with outputs of %d bytes each, none of which can be stored: the budget is %d bytes", n, each,
			limit)
	}
	w.sys.FailSettles(w, 0)
	for range n {
		ids = append(ids, w.produce(0, 1)...)
		w.eventually("a message was acked, since outputs are stored", handled)
	}
	w.settled()
	w.eachHasOutput(ids)
}

// outputsOfLost proves that what a process acks of a claim that is another's by now leaves nothing behind: it was taken, and its
// messages are handled by who has it now.
func outputsOfLost(w *world) {
	w.need("Steal", w.sys.Steal != nil)
	a, b := w.join(), w.join()
	w.eventually("both processes have a claim", func() bool { return len(a.claims.list(true)) > 0 && len(b.claims.list(true)) > 0 })
	ids := append(w.produce(0, 20), w.produce(1, 20)...)
	w.eventually("all are out", func() bool { return a.out() > 0 && a.out()+b.out() == len(ids) })
	ms := a.hand.untook()
	w.sys.Steal(w, ms[0].Claim)
	for _, msg := range ms {
		_ = a.ack(msg) // before it knows, while, and after
		time.Sleep(w.moment() / 20)
	}
	for _, m := range []*member{a, b} {
		defer m.handle(func(msg *broker.Message) { _ = m.ack(msg) })()
	}
	w.eventually("each message was handled", func() bool { return w.books.Open() == 0 })
	w.settled()
	w.eachHasOutput(ids)
}

// outputsOfKilled proves that of a process which dies right behind its acks each output is there with its ack, or is made again
// by who has the message then.
func outputsOfKilled(w *world) {
	var ids []string
	for round := range 6 {
		a := w.process()
		w.need("Kill", a.p.Kill != nil)
		a.open()
		a.receive()
		ids = append(ids, w.produce(0, 30)...)
		ms := a.take(20)
		_ = a.ack(ms[:10]...)
		time.Sleep(time.Duration(round) * w.moment() / 10)
		_ = a.ack(ms[10:]...)
		a.kill()
		a.waitStopped("Kill")
		b := w.join()
		stop := b.handle(func(msg *broker.Message) { _ = b.ack(msg) })
		w.settled()
		stop()
		b.close()
	}
	w.eachHasOutput(ids)
}

// outputsOfCut proves that an answer which got lost says nothing: what was stored is not stored again when the connection is
// back, and what was not is.
func outputsOfCut(d Direction) func(w *world) {
	return func(w *world) {
		m := w.process()
		w.need("Cut", m.p.Cut != nil)
		w.need("Heal", m.p.Heal != nil)
		m.open()
		m.receive()
		var ids []string
		for round := range 5 {
			ids = append(ids, w.produce(0, 20)...)
			ms := m.take(20)
			_ = m.ack(ms[:10]...)
			time.Sleep(time.Duration(round) * w.moment() / 20)
			m.p.Cut(d)
			_ = m.ack(ms[10:]...)
			time.Sleep(w.lease / 5)
			m.p.Heal()
			stop := m.handle(func(msg *broker.Message) { _ = m.ack(msg) })
			w.settled()
			stop()
		}
		w.eachHasOutput(ids)
	}
}

// outputsOfFrozen proves that a process which stands still for longer than the lease adds nothing when it goes on.
func outputsOfFrozen(w *world) {
	a := w.process()
	w.need("Freeze", a.p.Freeze != nil)
	w.need("Thaw", a.p.Thaw != nil)
	a.open()
	a.receive()
	ids := w.produce(0, 20)
	ms := a.take(20)
	_ = a.ack(ms[:5]...)
	a.freeze()
	b := w.join(budget(20, 1<<20))
	stop := b.handle(func(msg *broker.Message) { _ = b.ack(msg) })
	w.eventually("at most 15 messages are unsettled", func() bool { return w.sys.Unsettled(w) <= 15 }) // the first five perhaps
	a.p.Thaw()
	_ = a.ack(ms[5:]...)
	time.Sleep(w.lease)
	stopA := a.handle(func(msg *broker.Message) { _ = a.ack(msg) })
	w.settled()
	stop()
	stopA()
	w.eachHasOutput(ids)
}

// outputsAtEnd proves that what was acked before a claim ends, by a revocation or by Close, has its output when it has ended; and
// that it needs nobody else for that.
func outputsAtEnd(w *world) {
	a := w.join()
	ids := w.produce(0, 20)
	a.mustAck(a.take(20)...)
	if w.sys.Bounce != nil {
		w.sys.Bounce(w, a.current())
		w.eventually("the claim was ended", func() bool { return a.told.times(broker.Ended) > 0 })
		ids = append(ids, w.produce(0, 20)...)
		a.mustAck(a.take(20)...)
	}
	if w.sys.Revoke != nil {
		b := w.join() // it gets the partition, and needs to do nothing for what a has acked
		if c := a.current(); c != nil {
			w.sys.Revoke(w, c)
			w.eventually("the claim was revoked", func() bool { return len(b.claims.list(true)) > 0 })
		}
		w.eachHasOutput(ids)
	}
	a.close()
	w.eachHasOutput(ids)
	w.unsettled(0)
}

// outputsRecreated proves that what was acked in a topic that is deleted and made again has its output, or is reported as
// Unconfirmed: its message does not come again, but what was made of it is missed, too, and nobody else can tell.
func outputsRecreated(w *world) {
	w.need("Recreate", w.sys.Recreate != nil)
	w.need("FailSettles", w.sys.FailSettles != nil)
	m := w.join()
	ids := w.produce(0, 10)
	m.mustAck(m.take(10)...)
	w.settled()
	lost := w.produce(0, 10)
	ms := m.take(10)
	w.sys.FailSettles(w, 1<<20)
	m.mustAck(ms...)
	w.sys.Recreate(w, w.sys.Topics[0])
	w.eventually("the claim was ended", func() bool { return m.told.times(broker.Ended) > 0 })
	w.sys.FailSettles(w, 0)
	ids = append(ids, w.produce(0, 10)...)
	m.mustAck(m.take(10)...)
	w.settled()
	w.eachHasOutput(ids)
	without := slices.DeleteFunc(lost, func(name string) bool { return len(outputs(w)[name]) > 0 })
	w.eventually("acks whose outputs are not stored were reported as Unconfirmed", func() bool {
		return m.told.excused(0) >= int64(len(without))
	})
}

// outputsRefused proves that CheckEmit finds what will never be stored, and lets pass what will.
func outputsRefused(w *world) {
	m := w.join()
	e, _ := m.src.(broker.Emitter)
	for what, o := range map[string]broker.Outgoing{
		"without a topic":      {Value: []byte("x")},
		"to a reserved topic":  {Topic: "__consumer_offsets", Value: []byte("x")},
		"larger than is taken": {Topic: w.sys.Outputs, Value: make([]byte, w.sys.MaxMessageBytes+1)},
	} {
		if what == "larger than is taken" && w.sys.MaxMessageBytes <= 0 {
			continue
		}
		if err := e.CheckEmit(&o); !errors.Is(err, broker.ErrRefused) {
			w.Errorf("CheckEmit of an output %s: %v, want ErrRefused", what, err)
		}
	}
	if err := e.CheckEmit(&broker.Outgoing{Topic: w.sys.Outputs, Value: []byte("x")}); err != nil {
		w.Errorf("CheckEmit of a plain output: %v", err)
	}
	if w.sys.Publisher != nil && !e.Carries(w.publisher()) {
		w.Error("Carries says no of a publisher to the same broker")
	}
}

// outputsStorm proves that each message has one output when everything happens at once: see storm.
func outputsStorm(w *world) {
	storm(w)
	w.eachHasOutput(w.names.ids())
}
