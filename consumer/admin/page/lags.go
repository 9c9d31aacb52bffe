package page

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer/admin"
)

const (
	// lagAge is how old the broker's figures may be before it is asked again.
	lagAge = 2 * time.Second
	// lagTimeout is how long the broker may take: a page waits for it.
	lagTimeout = time.Second
)

// A lagCache asks the broker when somebody looks, one question at a time. Safe for concurrent use.
type lagCache struct {
	read func(context.Context) ([]Lag, error)

	mu   sync.Mutex
	at   time.Time
	rows []Lag
	err  error
	busy bool
}

// get returns what the broker says, or said up to lagAge ago; while another request asks, what it said before.
func (c *lagCache) get(ctx context.Context, now time.Time) (rows []Lag, err error) {
	if c.read == nil {
		return nil, nil
	}
	if rows, err, fresh := c.known(now); fresh {
		return rows, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lagTimeout) // others wait for the answer, too
	defer cancel()
	err = errPanicked
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.rows, c.err, c.at, c.busy = rows, err, now, false
	}()
	return c.read(ctx)
}

// errPanicked is of a read that did not return; the panic itself is the admin server's to tell.
var errPanicked = errors.New("asking for the lag panicked")

// known is what is known, and whether that will do. If not, the caller asks, and nobody else meanwhile.
func (c *lagCache) known(now time.Time) (rows []Lag, err error, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || !c.at.IsZero() && now.Sub(c.at) < lagAge {
		return c.rows, c.err, true
	}
	c.busy = true
	return nil, nil, false
}

// ownLags are those that the consumer knows itself.
func ownLags(t admin.Target) (rows []broker.PartitionLag) {
	p, ok := t.(partitioned)
	if !ok {
		return nil
	}
	rows = slices.Clone(p.LagByPartition())
	slices.SortFunc(rows, func(a, b broker.PartitionLag) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return rows
}
