package kafkabroker

import (
	"time"

	"github.com/longshoremq/longshore/broker/kit"
)

// A fetcher sends fetches, and looks where the log is that a position is not in.
type fetcher struct {
	cfg   *Config
	c     *cluster
	h     *holdings
	life  *kit.Life
	note  contact
	bells *bells
}

// schedule sends fetches for partitions that have nothing ready. It does not block.
func (x *fetcher) schedule() {
	for _, f := range x.h.plan(time.Now()) {
		x.life.Go(func() { x.fly(f) })
	}
}

func (x *fetcher) fly(f *flight) {
	began := time.Now()
	got, err := x.c.fetch(x.life.Context(), &f.req, x.cfg.MaxBatchBytes)
	x.note.exchange(began, err)
	for _, o := range x.h.arrived(f, got, err, time.Now()) {
		x.life.Go(func() { x.find(o) })
	}
}

// find finds out on which side of the log a position is.
func (x *fetcher) find(o outOfRange) {
	ctx := x.life.Context()
	first, err := x.c.listOffset(ctx, o.leader, o.p.partitionID, timeStart, x.cfg.isolation())
	end := int64(0)
	if err == nil {
		end, err = x.c.listOffset(ctx, o.leader, o.p.partitionID, timeEnd, 0)
	}
	if err != nil {
		x.note.failed(err)
		signal(x.bells.find)
		return
	}
	x.h.found(o, first, end)
}
