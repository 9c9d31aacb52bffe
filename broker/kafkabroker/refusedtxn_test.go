package kafkabroker

import (
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker/brokertest"
)

// TestTransactionsRefused: the broker refuses our transactional id, or how long our transactions may take. Nothing could ever be
// committed, so Receive says so: all that is handled until somebody acts would be handled again.
func TestTransactionsRefused(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{kerr.TransactionalIDAuthorizationFailed, kerr.InvalidTransactionTimeout} {
		t.Run(refusal.Message, func(t *testing.T) {
			t.Parallel()
			ts := fakeSystem(t, brokertest.Setup{Topics: 1, Partitions: 1, Lease: lasting}, "transactional")
			ts.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: refusal, Count: -1})
			l := ts.net.link()
			r := startRunner(t, ts.config(l))
			defer r.kill(l) // its last commit is refused, too
			select {
			case <-r.end:
			case <-time.After(patience):
				t.Error("Receive goes on")
			}
			if r.err == nil || codeOf(r.err) != kafka.Error(refusal.Code) {
				t.Errorf("Receive: %v, want %v", r.err, refusal.Message)
			}
		})
	}
}
