package kafkabroker

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"
)

// A slowConn answers one request and ends its context just before the answer; what SetDeadline does takes a while, as it may
// where the scheduler is busy.
type slowConn struct {
	cancel    func()
	answer    bytes.Buffer
	deadlines int
}

func (c *slowConn) Write(b []byte) (int, error) {
	var h [8]byte
	binary.BigEndian.PutUint32(h[:], 4+2)
	binary.BigEndian.PutUint32(h[4:], correlation)
	c.answer.Write(append(h[:], 0, 7))
	return len(b), nil
}

func (c *slowConn) Read(b []byte) (int, error) {
	c.cancel()
	return c.answer.Read(b)
}

func (c *slowConn) SetDeadline(time.Time) error {
	time.Sleep(time.Second)
	c.deadlines++
	return nil
}

// TestCancelledExchange: an exchange whose context ends just as the answer comes leaves nothing behind that touches the
// connection later. It did: the connection was given back, the next request set its deadline, then came the first one's deadline
// in the past, and the next request failed.
func TestCancelledExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &slowConn{cancel: cancel}
		q := &request{ctx: ctx, key: keyHeartbeat, version: 3, limit: 100}
		if _, err := q.RawExchange(c); err != nil || !bytes.Equal(q.answer, []byte{0, 7}) {
			t.Errorf("RawExchange: %v, %v", q.answer, err)
		}
		before := c.deadlines
		time.Sleep(2 * time.Second)
		if c.deadlines != before {
			t.Error("a deadline was set after the exchange was over")
		}
	})
}
