package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// A lagRow is how far behind a consumer is, in one partition on Kafka. What is unknown is nil.
type lagRow struct {
	Consumer string `json:"consumer,omitempty"` // of the configuration file
	Broker   string `json:"broker"`             // kafka, nats

	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Group     string `json:"group,omitempty"`
	Protocol  string `json:"protocol,omitempty"` // of the group's members: classic, consumer

	Stream  string `json:"stream,omitempty"`
	Durable string `json:"durable,omitempty"`

	Committed *int64 `json:"committed"` // all below it (Kafka), or up to it (JetStream), is settled
	End       *int64 `json:"end"`       // the offset that comes next (Kafka), or the last sequence (JetStream)
	Lag       *int64 `json:"lag"`
	Finished  *int64 `json:"finished"` // of the lag
	Error     string `json:"error,omitempty"`

	pending, redelivered *int64 // JetStream: delivered and not settled; of these delivered more than once
}

// A lagView reads the rows of one consumer.
type lagView struct {
	read  func(context.Context) ([]lagRow, error)
	close func()
}

// whyNoLag says why there is no partition to tell the lag of. Topics that are named have one each, or an error.
func whyNoLag(cfg kafkabroker.LagViewConfig) string {
	if cfg.Pattern != "" {
		return fmt.Sprintf("there is no topic that %q matches", cfg.Pattern)
	}
	return "has committed nothing: it has not begun, or its name is mistaken"
}

func kafkaView(consumer string, cfg kafkabroker.LagViewConfig) (lagView, error) {
	v, err := kafkabroker.NewLagView(cfg)
	if err != nil {
		return lagView{close: func() {}}, err
	}
	return lagView{close: v.Close, read: func(ctx context.Context) (rows []lagRow, err error) {
		lags, err := v.Read(ctx)
		if err != nil {
			return []lagRow{{Consumer: consumer, Broker: "kafka", Group: cfg.Group, Error: err.Error()}}, err
		}
		if len(lags) == 0 { // 0 would be told of a group whose name is a slip
			err := fmt.Errorf("group %s: %s", cfg.Group, whyNoLag(cfg))
			return []lagRow{{Consumer: consumer, Broker: "kafka", Group: cfg.Group, Error: err.Error()}}, err
		}
		protocol, err := v.Protocol(ctx)
		for _, l := range lags {
			row := lagRow{Consumer: consumer, Broker: "kafka", Topic: l.Topic, Group: cfg.Group, Protocol: protocol}
			if l.Partition >= 0 {
				row.Partition = &l.Partition
			}
			if l.Err != nil {
				row.Error, err = l.Err.Error(), errors.Join(err, l.Err)
			} else if row.End = &l.End; l.Committed >= 0 {
				row.Committed, row.Lag, row.Finished = &l.Committed, &l.Lag, &l.Finished
			}
			rows = append(rows, row)
		}
		return rows, err
	}}, nil
}

func natsView(consumer string, cfg natsbroker.LagViewConfig) (lagView, error) {
	v, err := natsbroker.NewLagView(cfg)
	if err != nil {
		return lagView{close: func() {}}, err
	}
	return lagView{close: v.Close, read: func(ctx context.Context) ([]lagRow, error) {
		row := lagRow{Consumer: consumer, Broker: "nats", Stream: cfg.Stream, Durable: cfg.Consumer}
		l, err := v.Read(ctx)
		if err != nil {
			row.Error = err.Error()
			return []lagRow{row}, err
		}
		row.Committed, row.End, row.Lag, row.Finished = &l.Committed, &l.End, &l.Lag, &l.Finished
		row.pending, row.redelivered = &l.Pending, &l.Redelivered
		return []lagRow{row}, nil
	}}, nil
}

// ofEmbedded is v for the embedded server of a file.
func (v lagView) ofEmbedded(file string) lagView {
	read := v.read
	v.read = func(ctx context.Context) ([]lagRow, error) {
		rows, err := read(ctx)
		if err != nil {
			err = embeddedAway(err, file)
		}
		return rows, err
	}
	return v
}

// readLags reads all views beside each other, each for at most timeout. What could not be read is in the rows, and in err: each
// text once, whichever consumers have met it.
func readLags(ctx context.Context, views []lagView, timeout time.Duration) (r lagReport, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	rows, errs := make([][]lagRow, len(views)), make([]error, len(views))
	var wg sync.WaitGroup
	for i, v := range views {
		wg.Go(func() { rows[i], errs[i] = v.read(ctx) })
	}
	wg.Wait()
	r.Rows = slices.Concat(rows...)
	r.Time = time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00")
	r.sum()
	if err = errors.Join(once(errs)...); err != nil {
		err = fmt.Errorf("not all could be read: %w", err)
	}
	return r, err
}

// once are errors without those whose text was there before, and without nil.
func once(errs []error) (all []error) {
	told := map[string]bool{"": true}
	for _, err := range errs {
		if err != nil && !told[err.Error()] {
			told[err.Error()] = true
			all = append(all, err)
		}
	}
	return all
}
