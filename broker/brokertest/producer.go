package brokertest

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest/ledger"
)

// A producer stands for other programs that produce. It numbers what they produce, and enters it into the books.
type producer struct {
	t     testing.TB
	sys   *System
	books *ledger.Ledger

	mu   sync.Mutex
	last int
}

// produce stores n new messages in the partition of the first topic and returns their ids, which are also their values.
func (p *producer) produce(partition, n int) []string {
	p.t.Helper()
	return p.produceTo(p.sys.Topics[0], partition, n)
}

func (p *producer) produceTo(topic string, partition, n int) []string {
	p.t.Helper()
	ids := make([]string, n)
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		ids[i] = p.newID()
		ms[i] = broker.Outgoing{Topic: topic, Value: []byte(ids[i])}
	}
	p.sys.Produce(p.t, partition, ms...)
	return ids
}

// newID enters a message into the books. Its value has to begin with the id; a dot ends it.
func (p *producer) newID() string {
	p.mu.Lock()
	p.last++
	id := fmt.Sprintf("m%05d", p.last)
	p.mu.Unlock()
	p.books.Produced(id)
	return id
}

// filled makes n messages of a size. They are in the books, and not stored yet.
func (p *producer) filled(topic string, n, size int) []broker.Outgoing {
	ms := make([]broker.Outgoing, n)
	for i := range ms {
		value := append([]byte(p.newID()), '.')
		ms[i] = broker.Outgoing{Topic: topic, Value: append(value, bytes.Repeat([]byte{'x'}, size-len(value))...)}
	}
	return ms
}
