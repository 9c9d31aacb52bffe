package kafkabroker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// persist does what a program asks for once, and again where a broker is away for a moment, as while it restarts: until ctx ends,
// or no other try would begin within RequestTimeout. Sources need none of it, for all that they do comes round again.
func (c Connection) persist(ctx context.Context, do func() error) error {
	var seen error // of the last try that had its time
	for over, wait := time.Now().Add(c.RequestTimeout), retryWait; ; wait = min(2*wait, time.Second) {
		err := do()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || seen == nil {
			seen = err
		}
		if ctx.Err() == nil && !(passing(err) && time.Now().Add(wait).Before(over)) {
			return err
		}
		if pause(ctx, wait); ctx.Err() != nil {
			return fmt.Errorf("%w (given up: %w)", seen, context.Cause(ctx))
		}
	}
}

// passing says that another try may be lucky soon. A login that failed is as wrong then as now.
func passing(err error) bool {
	switch codeOf(err) {
	case 0:
	case kafka.BrokerNotAvailable, // the Transport has not found the broker yet, or it is not among those that run
		kafka.LeaderNotAvailable, kafka.NotLeaderForPartition, kafka.NotController, kafka.RequestTimedOut, kafka.NetworkException,
		kafka.GroupLoadInProgress, kafka.GroupCoordinatorNotAvailable, kafka.NotCoordinatorForGroup:
		return true
	default:
		return false
	}
	var at *dialError
	var wrong *tls.CertificateVerificationError
	var other net.Error
	switch {
	case errors.Is(err, errNoLeader):
		return true
	case errors.As(err, &at) && at.step == loggingIn, errors.As(err, &wrong), isAlert(err):
		return false
	}
	return hungUp(err) || errors.Is(err, net.ErrClosed) || errors.As(err, &other)
}

// isAlert says that the other end has ended a TLS handshake, and why.
func isAlert(err error) bool {
	var of *net.OpError
	return errors.As(err, &of) && of.Op == "remote error"
}
