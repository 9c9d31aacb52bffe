package natsbroker

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A delivery that was read before a PONG is not newer than it, however late the process comes to handle it: until then there is
// no contact, or it would get a lease from now, while another process has had it for long. Not through the exported API, for
// there nothing tells when the socket was read.
func TestContactWaitsForWhatWasRead(t *testing.T) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	s, err := NewSource(Config{Connection: Connection{URLs: []string{srv.ClientURL()}}, Stream: "S", Consumer: "c"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.life.link.open(ctx); err != nil {
		t.Fatal(err)
	}
	defer s.life.link.close()
	nc := s.life.link.conn()
	read, handle := make(chan struct{}), make(chan struct{})
	if _, err := nc.Subscribe("late", func(*nats.Msg) { close(read); <-handle }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish("late", nil); err != nil {
		t.Fatal(err)
	}
	<-read
	s.held.stock.leases.ackWait = int64(time.Minute)
	made := make(chan bool)
	go func() { made <- s.leases.contact(ctx) }()
	select {
	case <-made:
		t.Errorf("there was contact at %v, before a delivery that came earlier was handled", time.Duration(s.held.stock.leases.contact))
		close(handle)
	case <-time.After(100 * time.Millisecond):
		close(handle)
		if !<-made || s.held.stock.leases.contact == 0 {
			t.Error("there is no contact")
		}
	}
}
