package kafkabroker

import (
	"context"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A poller looks at topics, and at the ends of partitions.
type poller struct {
	cfg    *Config
	c      *cluster
	m      membership
	atlas  *atlas
	h      *holdings
	events *kit.EventQueue
	note   contact
	bells  *bells
}

// unsure is how often topics are looked at while something is missing, and ends while brokers do not tell them.
const unsure = time.Second

// run looks every now and then, and when a fetch was told to look elsewhere.
func (x *poller) run(life context.Context) {
	looked, measured, whole := time.Now(), time.Now(), x.atlas.whole() // there was a look before
	timer := time.NewTimer(0)
	defer timer.Stop()
	var over chan struct{} // closed when the measure under way is; nil: there is none
	for life.Err() == nil {
		look, next := looked.Add(x.every(whole)), measured.Add(x.every(x.h.resting()))
		if over != nil || look.Before(next) {
			next = look
		}
		timer.Reset(max(0, time.Until(next)))
		select {
		case <-life.Done():
		case <-timer.C:
		case <-over:
			over, measured = nil, time.Now()
			continue
		case <-x.bells.stir:
			continue
		case <-x.bells.find:
			pause(life, retryWait) // a broker that says so again and again is not asked more often
			look = time.Time{}
		}
		if !time.Now().Before(look) {
			looked = time.Now()
			err := x.look(life, true)
			if err != nil {
				x.note.on(toTopics, looked, err)
			} else {
				x.note.rests(toTopics)
			}
			whole = err == nil && x.atlas.whole()
		}
		if over == nil { // beside it: a leader that hangs does not keep us from looking for others
			over = make(chan struct{})
			go func(over chan struct{}) {
				defer close(over)
				x.measure(life)
			}(over)
		}
	}
	if over != nil {
		<-over
	}
}

// every is how long to wait where all is well, or where it is not.
func (x *poller) every(well bool) time.Duration {
	if well {
		return x.cfg.Poll
	}
	return min(unsure, x.cfg.Poll)
}

// look learns how topics are laid out, and tells whoever it concerns. waits: what is missing is waited for.
func (x *poller) look(ctx context.Context, waits bool) error {
	look := x.atlas.begin()
	ts, err := x.c.topics(ctx, x.cfg.Topics)
	if err != nil {
		return err
	}
	v := x.atlas.learn(look, ts, waits)
	for _, err := range v.news {
		x.events.Say(broker.Event{Kind: broker.Warning, Err: err})
	}
	x.h.surveyed(v.topics, x.atlas.lacks)
	x.note.asks(x.h.asked(x.atlas))
	x.m.look(v)
	signal(x.bells.kick)
	return v.err
}

// measure learns the ends of partitions that no fetch has told of lately. Without it the lag would stand still just when it
// grows.
func (x *poller) measure(ctx context.Context) {
	led, asked := make(map[int32][]*part), make(map[partitionID]bool)
	for _, e := range x.h.unmeasured(time.Now()) {
		led[e.leader] = append(led[e.leader], e.p)
		asked[e.p.partitionID] = true
	}
	x.note.asksEnds(asked)
	var all sync.WaitGroup
	for leader, parts := range led { // one that does not answer keeps us from no other
		all.Go(func() { x.measureAt(ctx, leader, parts) })
	}
	all.Wait()
}

// measureAt asks one leader.
func (x *poller) measureAt(ctx context.Context, leader int32, parts []*part) {
	ps := make([]partitionID, len(parts))
	for i, p := range parts {
		ps[i] = p.partitionID
	}
	began := time.Now()
	ends, err := x.c.listOffsets(ctx, leader, ps, timeEnd, x.cfg.isolation())
	x.note.on(toBroker(leader), began, err)
	if err != nil {
		return
	}
	for _, p := range parts {
		switch end, err := offsetOf(ends, p.partitionID); {
		case moved(err): // it answers, and the next look tells who leads it
			x.note.rests(toEnd(p.partitionID))
		case err != nil:
			x.note.on(toEnd(p.partitionID), began, err)
		default:
			x.note.rests(toEnd(p.partitionID))
			x.h.measured(p, end, time.Now())
		}
	}
}
