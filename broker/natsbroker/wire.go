package natsbroker

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
)

// A wire is a socket that counts its reads: bytes that trickle in are a sign of life, long before they are a message. And it ends
// with a write that takes too long. nats.go drops what it had in its buffer then, and goes on where nothing of it was written, as
// to a server that has not read for FlusherTimeout: a subscription in it would be unknown to the server for as long as the
// connection lives, and after a PING each PONG would be taken for that of the one before. After any other failure there is
// nothing more to be read either, but perhaps why.
type wire struct {
	net.Conn
	reads  atomic.Uint64
	failed atomic.Pointer[error] // the write
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.reads.Add(1)
	}
	if why := w.failed.Load(); err != nil && why != nil {
		err = *why
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) && w.failed.CompareAndSwap(nil, &err) {
		_ = w.Close()
	}
	return n, err
}
