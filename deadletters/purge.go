package deadletters

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/longshoremq/longshore/broker"
)

// A remover deletes single messages: JetStream.
type remover interface {
	Remove(ctx context.Context, topic string, places []broker.Place) error
}

// A trimmer cuts logs off at their beginning: Kafka.
type trimmer interface {
	Trim(ctx context.Context, topic string, before map[int32]int64) error
}

// A PurgePlan is what a purge would delete.
type PurgePlan struct {
	// Letters is how many letters the filter chose.
	Letters int64
	// Places are the letters that can be deleted, and Waiting is how many of these were not replayed, or are uncertain.
	Places  []broker.Place
	Waiting int64
	// Behind are letters that cannot be deleted, since a letter that is to stay is stored before them in their partition, and First
	// is the first such letter. It is only so on Kafka, which cuts logs off at their beginning.
	Behind int64
	First  broker.Place
	log    string // that the places are of
	// trim is where each partition would begin; nil where letters are deleted one by one.
	trim map[int32]int64
}

// Sum names what would be deleted: plans with one sum delete the same letters.
func (p PurgePlan) Sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q", p.log)
	for _, one := range p.Places {
		fmt.Fprintf(h, " %d/%d", one.Partition, one.Offset)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// PlanPurge finds out what a purge would delete. It changes nothing.
func (l *Letters) PlanPurge(ctx context.Context, f Filter) (PurgePlan, error) {
	known, err := l.known(ctx)
	if err != nil {
		return PurgePlan{}, err
	}
	_, single := l.cfg.Store.(remover)
	p := planner{single: single, stays: map[int32]bool{}}
	p.plan.log = known.log
	err = l.scan(ctx, known, Filter{}, func(x *Letter) error {
		p.add(x, f.Match(x))
		return nil
	})
	return p.plan, err
}

// A planner is told of the letters of each partition in their order.
type planner struct {
	plan   PurgePlan
	single bool
	stays  map[int32]bool // a letter of the partition does
}

func (p *planner) add(x *Letter, chosen bool) {
	if !chosen {
		p.stays[x.Partition] = true
		return
	}
	p.plan.Letters++
	switch {
	case p.single:
	case p.stays[x.Partition]:
		if p.plan.Behind++; p.plan.Behind == 1 {
			p.plan.First = x.Place
		}
		return
	default:
		if p.plan.trim == nil {
			p.plan.trim = map[int32]int64{}
		}
		p.plan.trim[x.Partition] = x.Offset + 1
	}
	p.plan.Places = append(p.plan.Places, x.Place)
	if x.State != Replayed {
		p.plan.Waiting++
	}
}

// ErrAnew says that a topic was deleted and made again since a purge was planned, so that other letters are at its places.
var ErrAnew = errors.New("deadletters: the topic was made anew since the plan")

// Purge deletes what the plan says. It cannot be undone. Letters that came since are not touched: ErrAnew where all of them did.
func (l *Letters) Purge(ctx context.Context, p PurgePlan) error {
	if len(p.Places) == 0 {
		return nil
	}
	if err := l.identify(ctx); err != nil {
		return err
	}
	if l.log != p.log {
		return fmt.Errorf("%w: nothing was deleted from %s", ErrAnew, l.cfg.Topic)
	}
	if p.trim != nil {
		if t, ok := l.cfg.Store.(trimmer); ok {
			return t.Trim(ctx, l.cfg.Topic, p.trim)
		}
	} else if r, ok := l.cfg.Store.(remover); ok {
		return r.Remove(ctx, l.cfg.Topic, p.Places)
	}
	return fmt.Errorf("deadletters: deleting from %s: %w", l.cfg.Topic, errors.ErrUnsupported)
}
