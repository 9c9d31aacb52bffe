package kafkabroker

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker"
)

// TestIdle: a consumer to which nothing comes asks for messages less and less often, and not for topics at all until Poll is
// over. What comes is handed out.
func TestIdle(t *testing.T) {
	t.Parallel()
	c := startCluster(t, kfake.SeedTopics(3, "orders"))
	var mu sync.Mutex
	var waits []int32 // of fetches, in milliseconds
	looks := 0        // at topics since there are long waits
	c.ControlKey(keyFetch, func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		waits = append(waits, req.(*kmsg.FetchRequest).MaxWaitMillis)
		return nil, nil, false
	})
	c.ControlKey(keyMetadata, func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		if n := len(waits); n > 0 && waits[n-1] > 20 && len(req.(*kmsg.MetadataRequest).Topics) > 0 {
			looks++
		}
		return nil, nil, false
	})
	src, err := NewSource(Config{Connection: Connection{Brokers: c.ListenAddrs()}, Group: "g", Topics: []string{"orders"},
		Poll: time.Hour, MaxWait: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close(context.Background()) }()
	o := broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 64 << 20}, Observe: func(broker.Event) {}}
	if _, err := src.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	long := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, w := range waits {
			if w == 20*restLimit {
				n++
			}
		}
		return n
	}
	eventually(t, "ten fetches wait long", func() bool { return long() >= 10 })
	mu.Lock()
	if looks > 0 {
		t.Errorf("it looked at topics %d times", looks)
	}
	mu.Unlock()
	p, err := NewPublisher(PublisherConfig{Connection: Connection{Brokers: c.ListenAddrs()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close(context.Background()) }()
	if err := p.Publish(t.Context(), []broker.Outgoing{{Topic: "orders", Value: []byte("a")}}); err != nil {
		t.Fatal(err)
	}
	ms := make([]broker.Message, 1)
	if n, err := src.Receive(ms); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	mu.Lock()
	from := len(waits)
	mu.Unlock()
	eventually(t, "fetches beside what is out", func() bool { mu.Lock(); defer mu.Unlock(); return len(waits) > from+10 })
	mu.Lock()
	defer mu.Unlock()
	for _, w := range waits[from+1:] {
		if w > 20 {
			t.Errorf("while a message is out a fetch waits %d ms", w)
		}
	}
}
