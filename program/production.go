package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/published"
	"github.com/nats-io/nuid"
)

// A production publishes messages.
type production struct {
	publisher broker.Publisher
	topic     string
	payload   payload
	rate      float64
	count     int64 // 0: until stopped, or until the payload has no more
	keys      int
	key       *pattern // nil: as keys says
	timeout   time.Duration
	headers   []broker.Header

	id  string // of this run: with the number it lets the stream drop what was sent twice
	sum productionSummary
}

const (
	// retryPause is between two tries to have messages confirmed.
	retryPause = 200 * time.Millisecond
	// mostBytesAtOnce bounds what is on its way together; one message may be larger.
	mostBytesAtOnce = 1 << 20
)

// run publishes until count is reached, the payload has no more, ctx ends, or messages are refused or stay unconfirmed for longer
// than timeout.
func (p *production) run(ctx context.Context, shown *progress) (productionSummary, error) {
	p.id = nuid.Next()
	start := time.Now()
	limiter, together := p.limiter()
	defer shown.close()
	var err error
	for err == nil && (p.count == 0 || p.sum.Sent < p.count) {
		n := together
		if p.count > 0 {
			n = int(min(int64(n), p.count-p.sum.Sent))
		}
		ms, over := p.collect(ctx, n)
		if limiter.WaitN(ctx, len(ms)) != nil {
			if len(ms) > 0 || !errors.Is(over, io.EOF) {
				err = p.stopped(len(ms))
			}
			break
		}
		if len(ms) > 0 {
			err = p.step(ctx, ms)
			shown.set(p.sum.Confirmed)
		}
		if over != nil {
			if !errors.Is(over, io.EOF) {
				err = errors.Join(err, over)
			}
			break
		}
	}
	p.sum.Seconds = time.Since(start).Seconds()
	p.sum.Rate = float64(p.sum.Confirmed) / max(p.sum.Seconds, 1e-9)
	if not := p.sum.Sent - p.sum.Confirmed; not > 0 {
		err = fmt.Errorf("%d of %d messages were not confirmed: %w", not, p.sum.Sent, err)
	}
	return p.sum, err
}

// stopped says what a stop has left of what was asked for, with so many messages that were made and not sent: some of a count, or
// lines, which nobody can read from a pipe again. nil: nothing.
func (p *production) stopped(made int) (err error) {
	_, ofLines := p.payload.(*lines)
	switch {
	case p.count > 0:
		err = fmt.Errorf("stopped: %d of %d messages were sent", p.sum.Sent, p.count)
	case ofLines && (made > 0 || p.payload.ready()):
		err = errors.New("stopped: lines that were read were not sent")
	default:
		return nil
	}
	if ofLines && p.sum.Sent > 0 {
		err = fmt.Errorf("%w; the last one sent is %s", err, p.payload.name(p.sum.Sent-1))
	}
	return err
}

// collect makes the next messages, n at most, and fewer where the payload would have to be waited for. over says why there are no
// more.
func (p *production) collect(ctx context.Context, n int) (ms []broker.Outgoing, over error) {
	for size := 0; len(ms) < n && size < mostBytesAtOnce && (len(ms) == 0 || p.payload.ready()); {
		m, err := p.message(ctx, p.sum.Sent+int64(len(ms)))
		if err != nil {
			return ms, err
		}
		ms, size = append(ms, m), size+len(m.Value)
	}
	return ms, nil
}

// step publishes messages, and again those that were perhaps not stored, for at most timeout. The end of ctx does not cut it.
func (p *production) step(ctx context.Context, ms []broker.Outgoing) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.timeout)
	defer cancel()
	first := p.sum.Sent
	p.sum.Sent += int64(len(ms))
	failed, err := confirm(ctx, p.publisher, ms)
	var of *messageError
	if errors.As(err, &of) {
		n := slices.IndexFunc(ms, func(m broker.Outgoing) bool { return m.ID == of.id })
		err = fmt.Errorf("%s: %w", p.payload.name(first+int64(n)), err)
	}
	p.sum.Confirmed += int64(len(ms) - len(failed))
	p.sum.Bytes += bytesOf(ms) - bytesOf(failed)
	return err
}

func bytesOf(ms []broker.Outgoing) (n int64) {
	for i := range ms {
		n += int64(len(ms[i].Value))
	}
	return n
}

// confirm publishes messages, and again those that were perhaps not stored, until all are confirmed, one is refused, or ctx ends.
// It returns those that are not, and why.
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

// A messageError is why one of several messages was not confirmed.
type messageError struct {
	id string
	error
}

func (e *messageError) Unwrap() error { return e.error }

// unconfirmed are the messages that were not confirmed, and why the first of them, or the first that was refused, was not.
func unconfirmed(ms []broker.Outgoing, err error) ([]broker.Outgoing, error) {
	if err == nil {
		return nil, nil
	}
	errs, told := published.Each(err, len(ms))
	if !told {
		return ms, err
	}
	var failed []broker.Outgoing
	var first error
	for i, err := range errs {
		if err == nil {
			continue
		}
		failed = append(failed, ms[i])
		if first == nil || errors.Is(err, broker.ErrRefused) && !errors.Is(first, broker.ErrRefused) {
			first = &messageError{ms[i].ID, err}
		}
	}
	return failed, first
}

// message is number n.
func (p *production) message(ctx context.Context, n int64) (m broker.Outgoing, err error) {
	m = broker.Outgoing{Topic: p.topic, Headers: p.headers, ID: p.id + "-" + strconv.FormatInt(n, 10)}
	if m.Value, err = p.payload.next(ctx, n); err != nil {
		return m, err
	}
	switch {
	case p.key != nil:
		m.Key, err = p.key.next(ctx, n)
	case p.keys > 0:
		m.Key = []byte("key-" + strconv.FormatInt(n%int64(p.keys), 10))
	}
	return m, err
}
