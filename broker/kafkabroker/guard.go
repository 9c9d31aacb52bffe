package kafkabroker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A guard is a connection that kafka-go reads from. Its decoder allocates what an answer claims: eight bytes can claim 2^31-1
// topics, which ends the process. So an answer to a request of kafka-go's is read whole, each count and length in it is held
// against the bytes that are there, and only then it is handed on. Answers to our own requests pass as they are: their readers do
// the same.
//
// It is for one request at a time, as kafka-go uses its connections. Reading and writing are not safe for concurrent use.
type guard struct {
	net.Conn
	address string // that was dialed, for errors
	login   *login // renewed before a request where that is due; nil: there is none
	asked   question
	left    int64  // bytes of the request that are still to be written
	answer  []byte // checked, and not read yet
}

// RemoteAddr is the address that was dialed, as errors name it.
func (g *guard) RemoteAddr() net.Addr { return dialed(g.address) }

// dialed is an address as it was dialed: a name, mostly.
type dialed string

func (dialed) Network() string  { return "tcp" }
func (d dialed) String() string { return string(d) }

// A question is what an answer is to.
type question struct {
	key, version int16
	correlation  int32
}

// Write writes a part of a request. Its first part has the whole header, as kafka-go writes it, and we do.
func (g *guard) Write(b []byte) (int, error) {
	if g.left > 0 {
		g.left -= int64(len(b))
		return g.Conn.Write(b)
	}
	g.begin(b)
	if err := g.login.renew(); err != nil {
		return 0, err
	}
	return g.Conn.Write(b)
}

func (g *guard) begin(b []byte) {
	g.asked, g.answer = question{key: -1}, nil
	if len(b) < 12 {
		return
	}
	g.left = int64(int32(binary.BigEndian.Uint32(b))) + 4 - int64(len(b))
	g.asked = question{int16(binary.BigEndian.Uint16(b[4:])), int16(binary.BigEndian.Uint16(b[6:])),
		int32(binary.BigEndian.Uint32(b[8:]))}
	if g.asked.key == keyMetadata && g.asked.correlation != correlation {
		_ = g.SetDeadline(time.Now().Add(discoveryWait)) // the Transport takes it away after the answer
	}
}

// Read reads a part of the answer.
func (g *guard) Read(b []byte) (int, error) {
	if g.asked.correlation == correlation {
		return g.Conn.Read(b)
	}
	if len(g.answer) == 0 {
		var err error
		if g.answer, err = g.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, g.answer)
	g.answer = g.answer[n:]
	return n, nil
}

// next reads a whole answer and checks it.
func (g *guard) next() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(g.Conn, size[:]); err != nil {
		return nil, err
	}
	n := int64(int32(binary.BigEndian.Uint32(size[:])))
	if n < 4 || n > int64(limitOf(g.asked.key)) {
		return nil, fmt.Errorf("answer of %d bytes: %w", n, errShort)
	}
	b, err := readClaimed(g.Conn, int(n), 0)
	if err != nil {
		return nil, err
	}
	if err := checkAnswer(g.asked, b[4:]); err != nil {
		return nil, err
	}
	return append(size[:], b...), nil
}

// errUnchecked: an answer's shape is not known here, so nobody can tell what it claims.
var errUnchecked = errors.New("the answer cannot be checked")

// shapes walk through the answers to kafka-go's own requests. A request that is not here gets no answer.
var shapes = map[int16]struct {
	newest int16 // that kafka-go sends
	walk   func(r *reader, version int16)
}{
	keyProduce:     {8, walkProduced},
	keyMetadata:    {8, walkMetadata},
	keyAPIVersions: {2, walkVersions},
}

// checkAnswer says whether an answer has all that its counts and lengths claim.
func checkAnswer(to question, body []byte) error {
	s, known := shapes[to.key]
	if !known || to.version < 0 || to.version > s.newest {
		return fmt.Errorf("request %d in version %d: %w", to.key, to.version, errUnchecked)
	}
	r := &reader{b: body}
	s.walk(r, to.version)
	return r.err()
}

func walkVersions(r *reader, version int16) {
	r.i16()
	r.each(func() { r.take(6) })
	if version >= 1 {
		r.i32()
	}
}

func walkMetadata(r *reader, version int16) {
	if version >= 3 {
		r.i32() // throttled
	}
	r.each(func() { // brokers
		r.i32()
		r.str()
		r.i32()
		if version >= 1 {
			r.str() // rack
		}
	})
	if version >= 2 {
		r.str() // cluster
	}
	if version >= 1 {
		r.i32() // controller
	}
	r.each(func() { walkTopic(r, version) })
	if version >= 8 {
		r.i32() // what we may do
	}
}

func walkTopic(r *reader, version int16) {
	r.i16()
	r.str()
	if version >= 1 {
		r.i8() // internal
	}
	r.each(func() { // partitions
		r.take(2 + 4 + 4)
		if version >= 7 {
			r.i32() // epoch
		}
		replicas := func() { r.i32() }
		r.each(replicas)
		r.each(replicas) // in sync
		if version >= 5 {
			r.each(replicas) // offline
		}
	})
	if version >= 8 {
		r.i32() // what we may do
	}
}

func walkProduced(r *reader, version int16) {
	r.each(func() {
		r.str()
		r.each(func() { // partitions
			r.take(4 + 2 + 8)
			if version >= 2 {
				r.i64() // time
			}
			if version >= 5 {
				r.i64() // the log's start
			}
			if version >= 8 {
				r.each(func() { // records
					r.i32()
					r.str()
				})
				r.str()
			}
		})
	})
	if version >= 1 {
		r.i32() // throttled
	}
}
