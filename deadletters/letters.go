package deadletters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A Store is the brokers' part. kafkabroker.LogView and natsbroker.LogView have it.
type Store interface {
	// Scan calls each for every message that is stored under a topic, in order for each partition, up to where it ended when Scan
	// was called. It returns the first error of each, but for broker.ErrStopScan. broker.ErrNoTopic: there is no such topic.
	Scan(ctx context.Context, s broker.Scan, each func(*broker.Message) error) (broker.Scanned, error)
	// CreateLog makes a topic of one partition that keeps all, as safely as the topic like is kept; nil where it is there, an error
	// where it is there with more partitions: they have no order.
	CreateLog(ctx context.Context, topic, like string) error
}

// Config says which letters.
type Config struct {
	// Topic is the dead-letter topic, or subject. Required.
	Topic string
	// Store reads it, and the topics to which letters are replayed. The caller closes it. Required.
	Store Store
	// Publisher replays letters and writes the journal. The caller closes it. Required for Replay; nil for reading only.
	Publisher broker.Publisher
	// ConfirmTimeout is for how long a publish is tried until it is confirmed. Defaults to 30 s.
	ConfirmTimeout time.Duration
	// Settle is for how long a replay waits before it looks for publishes that were stopped in their topics: their last requests may
	// be still on the way. Defaults to 3 s.
	Settle time.Duration
}

// Letters are the dead letters of a topic. Not safe for concurrent use.
type Letters struct {
	cfg Config
	log string // of the topic, when it was looked at last
	bad Unreadable
}

// Unreadable are the records of the journal that the last call passed over.
func (l *Letters) Unreadable() Unreadable { return l.bad }

// New checks cfg. It does not connect.
func New(cfg Config) (*Letters, error) {
	cfg.ConfirmTimeout = cmp.Or(cfg.ConfirmTimeout, 30*time.Second)
	cfg.Settle = cmp.Or(cfg.Settle, 3*time.Second)
	f := &broker.Findings{Of: "deadletters"}
	f.Check(cfg.Topic != "", "Topic", "is required")
	f.Check(cfg.Store != nil, "Store", "is required")
	f.Check(cfg.ConfirmTimeout > 0, "ConfirmTimeout", "is %v, negative", cfg.ConfirmTimeout)
	f.Check(cfg.Settle > 0, "Settle", "is %v, negative", cfg.Settle)
	if err := f.Err(); err != nil {
		return nil, err
	}
	return &Letters{cfg: cfg}, nil
}

// Reach asks the broker for the topic. It tries until ctx ends, where the Store does; broker.ErrNoTopic: there is none.
func (l *Letters) Reach(ctx context.Context) error { return l.identify(ctx) }

// List calls each for every letter that the filter chooses, in the order of the topic, and returns the first error of each;
// broker.ErrStopScan ends it without one. It changes nothing.
func (l *Letters) List(ctx context.Context, f Filter, each func(*Letter) error) error {
	known, err := l.known(ctx)
	if err != nil {
		return err
	}
	return l.scan(ctx, known, f, each)
}

// ErrNoLetter says that there is no letter at a place.
var ErrNoLetter = errors.New("deadletters: there is no such letter")

// Get reads one letter. ErrNoLetter: there is none.
func (l *Letters) Get(ctx context.Context, p broker.Place) (found *Letter, err error) {
	err = l.List(ctx, Filter{Places: []broker.Place{p}}, func(x *Letter) error {
		found = x
		return broker.ErrStopScan
	})
	if err == nil && found == nil {
		err = fmt.Errorf("%w: %s in %s", ErrNoLetter, FormatPlace(p), l.cfg.Topic)
	}
	return found, err
}

// Missing are those of places where no letter is, in their order.
func (l *Letters) Missing(ctx context.Context, places []broker.Place) (missing []broker.Place, err error) {
	if len(places) == 0 {
		return nil, nil
	}
	there := map[broker.Place]bool{}
	err = l.List(ctx, Filter{Places: places}, func(x *Letter) error {
		there[x.Place] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(places), func(p broker.Place) bool { return there[p] }), nil
}

// scan reads the letters that the filter chooses. A filter that names places begins at the first of them.
func (l *Letters) scan(ctx context.Context, known *marks, f Filter, each func(*Letter) error) error {
	scan, left := broker.Scan{Topic: l.cfg.Topic}, len(f.Places)
	for i, p := range f.Places {
		if i == 0 || p.Offset < scan.Offset {
			scan.Offset = p.Offset
		}
		if p.Partition >= 0 {
			scan.Partitions = append(scan.Partitions, p.Partition)
		}
	}
	done, err := l.cfg.Store.Scan(ctx, scan, func(m *broker.Message) error {
		x := readLetter(m)
		known.tell(x)
		if !f.Match(x) {
			return nil
		}
		if err := each(x); err != nil {
			return err
		}
		if left--; left == 0 {
			return broker.ErrStopScan
		}
		return nil
	})
	if err == nil && done.Log != known.log {
		err = errors.New("the topic was deleted and made again meanwhile")
	}
	if err != nil {
		return fmt.Errorf("reading the dead letters of %s: %w", l.cfg.Topic, err)
	}
	return nil
}

// known is what the journal says; a topic whose letters nobody has replayed has none.
func (l *Letters) known(ctx context.Context) (*marks, error) {
	if err := l.identify(ctx); err != nil {
		return nil, err
	}
	j := l.journal("")
	return j.load(ctx)
}

// identify finds out which log the topic is now.
func (l *Letters) identify(ctx context.Context) error {
	stop := func(*broker.Message) error { return broker.ErrStopScan }
	done, err := l.cfg.Store.Scan(ctx, broker.Scan{Topic: l.cfg.Topic}, stop)
	if err != nil {
		return fmt.Errorf("reading the dead letters of %s: %w", l.cfg.Topic, err)
	}
	l.log = done.Log
	return nil
}

func hostname() string {
	h, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return h
}
