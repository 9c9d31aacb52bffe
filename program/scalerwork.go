package program

import (
	"context"
	"errors"
	"fmt"

	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/internal/replicas"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/nats-io/nats.go/jetstream"
)

// A workView asks a broker how much work one source has. It is not for several goroutines at once.
type workView struct {
	read  func(context.Context) (sourceWork, error)
	close func()
}

// sourceWork is what there is to do.
type sourceWork struct {
	parts   []replicas.Part
	most    int // as in a Reading
	missing bool
	later   bool // of retry topics
}

// workViews are those of a consumer's sources, and that of its retry topics where it has some.
func workViews(name string, c *config.Consumer, doc *config.Document) (views []workView, err error) {
	add := func(v workView, failed error) { views, err = append(views, v), errors.Join(err, failed) }
	for i, in := range c.Reads() {
		switch {
		case in.NATS != nil:
			add(natsWork(in.NATS, c.Order, doc.File.Embedded))
		case in.Kafka != nil:
			add(kafkaWork(in.Kafka, nil))
			if i == 0 && len(c.Retry.Topics) > 0 {
				add(kafkaWork(in.Kafka, c.Retry.Names()))
			}
		case in.NATSCore != nil:
			add(unknownWork(fmt.Errorf("consumer %s: core NATS keeps nothing, so nobody can tell what waits", name)), nil)
		default:
			add(unknownWork(fmt.Errorf("consumer %s: the scaler does not know the broker %s", name, in.Other.Adapter)), nil)
		}
	}
	return views, err
}

// unknownWork is that of a source of which it is not known, and why.
func unknownWork(why error) workView {
	return workView{func(context.Context) (sourceWork, error) { return sourceWork{}, why }, func() {}}
}

// kafkaWork is that of a group; with the names of retry topics, that of the group which reads them.
func kafkaWork(k *config.Kafka, retries []string) (workView, error) {
	cfg := k.Adapter()
	view := kafkabroker.LagViewConfig{Connection: cfg.Connection, Group: cfg.Group, Topics: cfg.Topics, Pattern: cfg.Pattern,
		Uncommitted: cfg.Uncommitted}
	fromEnd := cfg.Start.At == "latest"
	if retries != nil {
		view.Group, view.Topics, view.Pattern, fromEnd = k.RetryGroup(), retries, "", false
	}
	v, err := kafkabroker.NewLagView(view)
	if err != nil {
		return workView{close: func() {}}, err
	}
	return workView{close: v.Close, read: func(ctx context.Context) (sourceWork, error) {
		lags, err := v.Read(ctx)
		w := sourceWork{later: retries != nil}
		for _, l := range lags {
			err = errors.Join(err, l.Err)
			w.parts = append(w.parts, kafkaPart(view.Group, l, fromEnd, w.later))
		}
		if !w.later {
			w.most = len(w.parts)
		}
		if err == nil && len(w.parts) == 0 && !w.later {
			err = fmt.Errorf("group %s reads no topic that is there", view.Group)
		}
		return w, err
	}}, nil
}

// kafkaPart is a partition. Where nothing is committed, a process would begin at the log's start, or at its end.
func kafkaPart(group string, l kafkabroker.PartitionLag, fromEnd, later bool) replicas.Part {
	p := replicas.Part{Name: fmt.Sprintf("%s/%s/%d", group, l.Topic, l.Partition), Arrived: l.End, Backlog: l.Lag - l.Finished,
		Later: later}
	switch {
	case l.Committed >= 0:
	case fromEnd:
		p.Backlog = 0
	default:
		p.Backlog = l.End - l.Start
	}
	return p
}

// natsWork is that of a durable. The embedded server belongs to one process.
func natsWork(n *config.NATS, order consumer.Order, e config.Embedded) (workView, error) {
	cfg := n.Adapter(embeddedURL(e))
	v, err := natsbroker.NewLagView(natsbroker.LagViewConfig{Connection: cfg.Connection, Stream: cfg.Stream, Consumer: cfg.Consumer,
		Domain: cfg.Domain})
	if err != nil {
		return workView{close: func() {}}, err
	}
	w := sourceWork{}
	if order != "" && order != consumer.OrderNone || n.Embedded() {
		w.most = 1
	}
	return workView{close: v.Close, read: func(ctx context.Context) (sourceWork, error) {
		w := w
		l, err := v.Read(ctx)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound) && !cfg.Bind, errors.Is(err, jetstream.ErrStreamNotFound) &&
			cfg.CreateStream != nil:
			w.missing = true
			return w, nil
		case err != nil:
			return w, err
		}
		w.parts = []replicas.Part{{Name: cfg.Stream + "/" + cfg.Consumer, Arrived: l.Arrived, Backlog: l.Lag - l.Finished,
			Held: l.Paused}}
		return w, nil
	}}, nil
}
