package redisbroker

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
)

// A keeper extends the leases of all that is here, whatever Receive and the handlers do, and asks how far behind the group is.
// So it shows whether there is contact while nothing is asked for.
type keeper struct {
	*link
	stock *stock
	lease time.Duration
	lag   atomic.Pointer[broker.Lag] // nil: not known yet
}

// run keeps until ctx ends.
func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(min(k.lease/10, time.Second/2))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, st := range k.stock.streams {
			for ds := range slices.Chunk(k.stock.due(st), mostAtOnce) {
				k.extend(ctx, st, ds)
			}
		}
		k.askLag(ctx)
	}
}

func (k *keeper) extend(ctx context.Context, st *stream, ds []*kit.Delivery[string]) {
	var args []any
	for _, d := range ds {
		args = append(args, d.ID)
	}
	cmd, asked := k.link.run(ctx, extendScript, st.name, args...)
	if said, err := cmd.Int64Slice(); err == nil {
		k.stock.extended(ds, said, asked)
	}
}

// askLag adds up the streams'. Where one is not known, all stays as it was.
func (k *keeper) askLag(ctx context.Context) {
	sum := broker.Lag{Group: true, At: time.Now()}
	for _, st := range k.stock.streams {
		cmd, _ := k.link.run(ctx, lagScript, st.name)
		said, err := cmd.Int64Slice()
		if err != nil || len(said) != 2 || said[1] < 0 {
			return
		}
		sum.Waiting, sum.Unsettled = sum.Waiting+said[1], sum.Unsettled+said[0]+said[1]
	}
	k.lag.Store(&sum)
}
