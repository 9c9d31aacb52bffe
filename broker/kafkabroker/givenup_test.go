package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// TestOpenThatIsGivenUp: whoever ends an Open knows it, and is not told that the broker were down.
func TestOpenThatIsGivenUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() { // a broker that is asked, and silent
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			wg.Go(func() {
				defer c.Close()
				_, _ = c.Read(make([]byte, 1))
				cancel()
				_, _ = c.Read(make([]byte, 1<<16))
				_, _ = c.Read(make([]byte, 1<<16))
			})
		}
	})
	s, err := NewSource(Config{Connection: Connection{Brokers: []string{l.Addr().String()}}, Group: "g", Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var downs []string
	_, err = s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 100, Bytes: 1 << 20}, Observe: func(e broker.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == broker.Down {
			downs = append(downs, fmt.Sprint(e.Err))
		}
	}})
	closing, end := context.WithTimeout(context.Background(), 5*time.Second)
	defer end()
	if cerr := s.Close(closing); !errors.Is(err, context.Canceled) || cerr != nil {
		t.Errorf("Open: %v, Close: %v", err, cerr)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, e := range downs {
		if strings.Contains(e, context.Canceled.Error()) {
			t.Errorf("told: %v", e)
		}
	}
}
