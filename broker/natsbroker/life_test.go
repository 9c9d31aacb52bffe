package natsbroker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// Close beside Open, at any moment of it: Open says ErrClosed or has opened, each claim that was told ends, and nothing is told
// after Close. goleak sees what is left behind.
func TestCloseBesideOpen(t *testing.T) {
	ts := startServer(t)
	ts.admin().stream()
	for name, fresh := range map[string]func() (broker.Source, error){
		"jetstream": func() (broker.Source, error) { return natsbroker.NewSource(config(ts.url())) },
		"core": func() (broker.Source, error) {
			return natsbroker.NewCoreSource(natsbroker.CoreConfig{
				Connection: config(ts.url()).Connection, Subjects: []string{"t"}, Queue: "q",
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range 25 {
				s, err := fresh()
				if err != nil {
					t.Fatal(err)
				}
				ev := &events{}
				o := someOptions()
				o.Observe = ev.observe
				opened := make(chan error, 1)
				go func() {
					_, err := s.Open(context.Background(), o)
					opened <- err
				}()
				time.Sleep(time.Duration(i*i) * 20 * time.Microsecond) // a spread, no condition: each moment is right
				closeSource(t, s)
				if err := <-opened; err != nil && !errors.Is(err, broker.ErrClosed) {
					t.Fatalf("Open: %v", err)
				}
				assigned, ended := ev.of(broker.Assigned), ev.of(broker.Ended)
				if len(assigned) != len(ended) {
					t.Fatalf("%d claims began and %d ended", len(assigned), len(ended))
				}
				for _, e := range ended {
					if !errors.Is(e.Claim.Cause(), broker.ErrClosed) {
						t.Errorf("the claim ended by %v", e.Claim.Cause())
					}
				}
			}
		})
	}
}
