package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/nats-io/nuid"
)

// A production publishes numbered messages.
type production struct {
	publisher broker.Publisher
	topic     string
	rate      float64
	count     int64
	size      int
	keys      int
	timeout   time.Duration
	set       []string        // of --header
	headers   []broker.Header // of set

	id  string // of this run: with the number it lets the stream drop what was sent twice
	sum productionSummary
}

// retryPause is between two tries to have messages confirmed.
const retryPause = 200 * time.Millisecond

// run publishes until count is reached, ctx ends, or messages are refused or stay unconfirmed for longer than timeout.
func (p *production) run(ctx context.Context, shown *progress) (productionSummary, error) {
	p.id = nuid.Next()
	start := time.Now()
	limiter, together := p.limiter()
	defer shown.close()
	var err error
	for err == nil && (p.count == 0 || p.sum.Sent < p.count) {
		n := int64(together)
		if p.count > 0 {
			n = min(n, p.count-p.sum.Sent)
		}
		if limiter.WaitN(ctx, int(n)) != nil {
			break // stopped
		}
		err = p.step(ctx, n)
		shown.set(p.sum.Confirmed)
	}
	p.sum.Seconds = time.Since(start).Seconds()
	p.sum.Rate = float64(p.sum.Confirmed) / max(p.sum.Seconds, 1e-9)
	p.sum.Bytes = p.sum.Confirmed * int64(p.size)
	if err != nil {
		err = fmt.Errorf("%d of %d messages were not confirmed: %w", p.sum.Sent-p.sum.Confirmed, p.sum.Sent, err)
	}
	return p.sum, err
}

// step publishes the next n messages, and again those that were perhaps not stored, for at most timeout. The end of ctx does not cut it.
func (p *production) step(ctx context.Context, n int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.timeout)
	defer cancel()
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		ms[i] = p.message(p.sum.Sent + int64(i))
	}
	p.sum.Sent += n
	failed, err := confirm(ctx, p.publisher, ms)
	p.sum.Confirmed += n - int64(len(failed))
	return err
}

// confirm publishes messages, and again those that were perhaps not stored, until all are confirmed, one is refused, or ctx ends. It returns those that are not,
// and why.
func confirm(ctx context.Context, p broker.Publisher, ms []broker.Outgoing) ([]broker.Outgoing, error) {
	for {
		failed, err := unconfirmed(ms, p.Publish(ctx, ms))
		if err == nil || errors.Is(err, broker.ErrRefused) || ctx.Err() != nil {
			return failed, err
		}
		ms = failed
		select {
		case <-ctx.Done():
			return ms, err
		case <-time.After(retryPause):
		}
	}
}

// unconfirmed are the messages that were not confirmed, and why the first of them, or the first that was refused, was not.
func unconfirmed(ms []broker.Outgoing, err error) ([]broker.Outgoing, error) {
	if err == nil {
		return nil, nil
	}
	var each *broker.PublishError
	if !errors.As(err, &each) {
		return ms, err
	}
	var failed []broker.Outgoing
	var first error
	for i, err := range each.Errs {
		if err == nil {
			continue
		}
		failed = append(failed, ms[i])
		if first == nil || errors.Is(err, broker.ErrRefused) && !errors.Is(first, broker.ErrRefused) {
			first = err
		}
	}
	return failed, first
}

// message is number n.
func (p *production) message(n int64) broker.Outgoing {
	m := broker.Outgoing{Topic: p.topic, Headers: p.headers, ID: p.id + "-" + strconv.FormatInt(n, 10)}
	body := struct {
		Number int64  `json:"number"`
		Pad    string `json:"pad"`
	}{Number: n}
	bare, _ := json.Marshal(body) // cannot fail: a number and a string
	body.Pad = strings.Repeat(".", max(0, p.size-len(bare)))
	m.Value, _ = json.Marshal(body)
	if p.keys > 0 {
		m.Key = []byte("key-" + strconv.FormatInt(n%int64(p.keys), 10))
	}
	return m
}
