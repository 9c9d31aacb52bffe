package natsbroker

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
)

// TestGatherInAnyOrderOfEvents plays turns in which everything that may happen while one gathers does, in any order: late acks of
// the process before, deliveries and acks that are lost, give-backs, limits, looks. Nothing is handed out before what stands
// before it is settled, handled or here, and when nothing goes wrong any more all comes to be settled.
func TestGatherInAnyOrderOfEvents(t *testing.T) {
	seeds := uint64(20_000)
	if testing.Short() {
		seeds = 2000
	}
	for seed := range seeds {
		m := newTurnModel(t, seed)
		for range 60 {
			m.step()
		}
		m.settle()
		if m.wrong != "" {
			t.Fatalf("seed %d: %s: %v", seed, m.wrong, m.log)
		}
	}
}

// modelMessage is a message as the server has it.
type modelMessage struct {
	seq       uint64
	delivered int
	settled   bool
	before    bool // the process before had it, and may ack it late
	away      bool // is to be delivered again: lost, given back, or its lease is over
	acking    bool // its ack is on its way
	handled   bool
	removed   bool // by a limit
}

// turnModel is a server with one stream, and the turn of one process.
type turnModel struct {
	*playedTurn
	rnd        *rand.Rand
	ms         []*modelMessage // that of sequence n at n-1
	deliveries uint64
	out        []broker.Message
	wrong      string
	log        []string
}

func newTurnModel(t *testing.T, seed uint64) *turnModel {
	m := &turnModel{playedTurn: playTurn(t), rnd: rand.New(rand.NewPCG(seed, 1))}
	m.s.held.stock.from.started = true // the stream may be asked
	for range 1 + m.rnd.IntN(3) {
		x := m.publish()
		x.delivered, x.before, x.away = 1, true, true
	}
	return m
}

func (m *turnModel) say(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *turnModel) publish() *modelMessage {
	x := &modelMessage{seq: uint64(len(m.ms) + 1)}
	m.ms = append(m.ms, x)
	return x
}

// those are the unsettled of which that is true.
func (m *turnModel) those(is func(*modelMessage) bool) (xs []*modelMessage) {
	for _, x := range m.ms {
		if !x.settled && is(x) {
			xs = append(xs, x)
		}
	}
	return xs
}

func (m *turnModel) one(is func(*modelMessage) bool) *modelMessage {
	if xs := m.those(is); len(xs) > 0 {
		return xs[m.rnd.IntN(len(xs))]
	}
	return nil
}

func (m *turnModel) oneIn(n int) bool { return m.rnd.IntN(n) == 0 }

func isAny(*modelMessage) bool { return true }

// isOver: the turn was lost, or the session is another: what comes then is no part of it.
func (m *turnModel) isOver() bool {
	return m.wrong != "" || m.b.ses.pin.lost != nil || m.s.held.stock.ses != m.b.ses
}

// step lets one thing happen.
func (m *turnModel) step() {
	if m.isOver() {
		return
	}
	switch m.rnd.IntN(12) {
	case 9:
		if x := m.one(isAny); x != nil && m.oneIn(2) {
			m.say("a limit removes %d", x.seq)
			x.settled, x.away, x.removed = true, false, true
		}
	case 0, 1:
		if x := m.one(func(x *modelMessage) bool { return x.away }); x != nil {
			m.deliver(x, m.oneIn(5))
		}
	case 2:
		if len(m.ms) < 7 {
			m.deliver(m.publish(), m.oneIn(4))
		}
	case 3:
		if x := m.one(func(x *modelMessage) bool { return x.before }); x != nil {
			m.say("late ack of %d", x.seq)
			x.settled, x.away = true, false
		}
	case 4, 5:
		m.handOut(1)
	case 6:
		if len(m.out) > 0 {
			m.ack(m.take())
		}
	case 7:
		if len(m.out) > 0 && m.oneIn(2) {
			m.nack(m.take())
		}
	case 8:
		if x := m.one(func(x *modelMessage) bool { return x.acking }); x != nil {
			m.acked(x, m.oneIn(4))
		}
	default:
		m.look()
	}
	m.hear()
}

func (m *turnModel) deliver(x *modelMessage, lost bool) {
	m.deliveries++
	x.delivered++
	x.away = lost
	m.say("delivery #%d: %d, its %d., lost: %v", m.deliveries, x.seq, x.delivered, lost)
	if !lost {
		m.arrives(x.delivered, x.seq, m.deliveries)
	}
}

// handOut hands out up to n, and looks whether what stands before each is settled, handled, or here.
func (m *turnModel) handOut(n int) {
	for _, g := range m.receive(n) {
		m.say("handed out %d", g.Offset)
		for _, x := range m.ms[:g.Offset-1] {
			if !x.settled && !x.handled && m.b.ses.slots.find(x.seq, 1700000000000000000) == nil {
				m.wrong = fmt.Sprintf("%d is handed out, and %d is missing", g.Offset, x.seq)
			}
		}
		m.out = append(m.out, g)
	}
}

// take takes one that is out.
func (m *turnModel) take() broker.Message {
	i := m.rnd.IntN(len(m.out))
	g := m.out[i]
	m.out = append(m.out[:i], m.out[i+1:]...)
	return g
}

func (m *turnModel) nack(g broker.Message) {
	m.say("nack of %d", g.Offset)
	_ = m.s.Nack(g.Claim, []broker.Back{{Token: g.Token, Runs: 1}})
	m.ms[g.Offset-1].away = true
}

// acked: the server takes an ack, or it is lost.
func (m *turnModel) acked(x *modelMessage, lost bool) {
	m.say("ack of %d, lost: %v", x.seq, lost)
	x.acking, x.settled, x.away = false, !lost, lost
}

// look tells what the server counts.
func (m *turnModel) look() {
	info := infoOfPin("x")
	info.NumAckPending, info.Delivered = len(m.those(isAny)), jetstream.SequenceInfo{Consumer: m.deliveries}
	for _, x := range m.ms {
		if !x.settled {
			break
		}
		info.AckFloor.Stream = x.seq
	}
	m.say("look: %d pending, #%d, floor %d", info.NumAckPending, m.deliveries, info.AckFloor.Stream)
	if m.b.ses.pin.id != "" {
		taken := len(m.those(func(x *modelMessage) bool { return x.handled })) == 0
		gone := removed{}
		for _, x := range m.ms {
			if x.removed && (pinSide{m.s.held}).complete(m.b.ses, info) {
				gone.between = append(gone.between, x.seq)
			}
		}
		pinSide{m.s.held}.gathered(m.b.ses, info, gone, mark{m.b.ses.pin.balance.done, taken, m.b.ses.pin.last})
	}
}

// hear takes what the process sends.
func (m *turnModel) hear() {
	settles := &m.s.outbox.settles
	for _, n := range settles.naks {
		d, _ := parseReply(n.reply)
		if x := m.ms[d.stream-1]; !x.settled {
			x.away = true
		}
	}
	for _, a := range settles.acks {
		d, _ := parseReply(a.reply)
		m.ms[d.stream-1].acking, m.ms[d.stream-1].handled = true, true
	}
	settles.naks, settles.acks = nil, nil
}

// settle lets nothing go wrong any more, until all is settled.
func (m *turnModel) settle() {
	if m.isOver() {
		return
	}
	m.deliver(m.publish(), false)
	m.hear()
	for range 50 {
		for _, x := range m.those(isAny) {
			if x.acking {
				m.acked(x, false)
			} else if x.away || x.before && x.delivered == 1 {
				m.deliver(x, false)
			}
			m.hear()
		}
		if m.isOver() || m.b.ses.pin.id == "" {
			return
		}
		m.look()
		m.hear()
		for range min(1, len(m.out)) {
			m.ack(m.take())
		}
		m.hear()
		m.handOut(3)
		m.hear()
		if len(m.those(isAny)) == 0 && len(m.out) == 0 && m.b.ses.slots.used == 0 {
			return
		}
	}
	m.wrong = fmt.Sprintf("it stands still with %d pending, %d out, %d here", len(m.those(isAny)), len(m.out), m.b.ses.slots.used)
}
