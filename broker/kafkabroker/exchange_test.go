package kafkabroker

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
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

// A body whose chunks lie elsewhere is written as if it had them, in one piece where it is short.
func TestRequestWithChunks(t *testing.T) {
	for _, size := range []int{1, 100, smallRequest, 100_000} {
		batches := map[partitionID][]byte{
			{"a", 0}: bytes.Repeat([]byte("x"), size), {"a", 3}: bytes.Repeat([]byte("y"), size+1),
			{"b", 1}: bytes.Repeat([]byte("z"), size)}
		body, chunks := produceBody(produceVersion, "t", time.Second, batches)
		var whole []byte
		at := 0
		for _, c := range chunks {
			whole = append(append(whole, body[at:c.at]...), c.bytes...)
			at = c.at
		}
		whole = append(whole, body[at:]...)
		if len(chunks) != len(batches) || at != len(body) {
			t.Fatalf("%d chunks, the last at %d of %d", len(chunks), at, len(body))
		}
		var direct, apart writeCounter
		for to, q := range map[*writeCounter]*request{
			&direct: {ctx: t.Context(), key: keyProduce, version: produceVersion, clientID: "me", body: whole},
			&apart:  {ctx: t.Context(), key: keyProduce, version: produceVersion, clientID: "me", body: body, chunks: chunks},
		} {
			_, _ = q.RawExchange(to) // nobody answers
		}
		if !bytes.Equal(direct.Bytes(), apart.Bytes()) {
			t.Errorf("chunks of %d bytes: %d bytes were written, want %d, or others", size, apart.Len(), direct.Len())
		}
		if n := apart.writes; (n == 1) != (size <= 100) {
			t.Errorf("chunks of %d bytes: %d writes", size, n)
		}
	}
}

type writeCounter struct {
	bytes.Buffer
	writes int
}

func (w *writeCounter) Write(b []byte) (int, error) {
	w.writes++
	return w.Buffer.Write(b)
}

func (w *writeCounter) Read([]byte) (int, error) { return 0, io.EOF }
