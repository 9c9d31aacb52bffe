package kafkabroker

import (
	"context"
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

// run looks every now and then, and when a fetch was told to look elsewhere.
func (x *poller) run(life context.Context) {
	tick := time.NewTicker(x.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-life.Done():
			return
		case <-tick.C:
		case <-x.bells.find:
			pause(life, retryWait) // a broker that says so again and again is not asked more often
		}
		if err := x.look(life, true); err != nil {
			x.note.failed(err)
		}
		x.measure(life)
	}
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
	x.h.surveyed(v.topics)
	x.m.look(v)
	signal(x.bells.kick)
	return v.err
}

// measure learns the ends of partitions that no fetch has told of lately. Without it the lag would stand still just when it
// grows.
func (x *poller) measure(ctx context.Context) {
	led := make(map[int32][]*part)
	for _, e := range x.h.unmeasured(time.Now()) {
		led[e.leader] = append(led[e.leader], e.p)
	}
	for leader, parts := range led {
		ps := make([]partitionID, len(parts))
		for i, p := range parts {
			ps[i] = p.partitionID
		}
		ends, err := x.c.listOffsets(ctx, leader, ps, timeEnd, x.cfg.isolation())
		if err != nil {
			x.note.failed(err)
			continue
		}
		for _, p := range parts {
			end, err := offsetOf(ends, p.partitionID)
			if err != nil {
				x.note.failed(err)
				continue
			}
			x.h.measured(p, end, time.Now())
		}
	}
}
