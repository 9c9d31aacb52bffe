package page_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/admin/page"
	"github.com/longshoremq/longshore/deadletters"
)

// hanging is a publisher that confirms nothing until it is let go.
type hanging struct {
	broker.Publisher
	asked chan struct{}
	let   chan struct{}
}

func (h *hanging) Publish(context.Context, []broker.Outgoing) error {
	select {
	case h.asked <- struct{}{}:
	default:
	}
	<-h.let
	return broker.ErrClosed
}

// TestStopWithAJob: a job whose broker does not answer holds the server's end up for no longer than stopPatience, and nobody
// begins another one.
func TestStopWithAJob(t *testing.T) {
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1, "orders-dead": 1}})
	letter := broker.Outgoing{Topic: "orders-dead", Value: []byte("x")}
	if err := b.Produce(letter); err != nil {
		t.Fatal(err)
	}
	h := &hanging{asked: make(chan struct{}, 1), let: make(chan struct{})}
	ui := page.New(page.Config{})
	ui.Watch("orders", page.Sources{Letters: []page.Letters{{Config: deadletters.Config{Topic: "orders-dead", Store: b.LogView(),
		Publisher: h, ConfirmTimeout: time.Second}}}})
	c, err := consumer.New(consumer.Config{Source: b.Source(membroker.SourceConfig{Topics: []string{"orders"}}),
		Handler: func(context.Context, *consumer.Message) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := admin.New(admin.Config{Listen: "127.0.0.1:0", Token: token, Targets: map[string]admin.Target{"orders": c}, Page: ui})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	w := &world{url: "http://" + s.Addr().String()}
	browser := w.login(t)
	form := url.Values{"scope": {"all"}, "to": {"orders"}, "sure": {"yes"}, "number": {"1"}}
	if a := browser.post("/ui/c/orders/replay", form); a.status != 303 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	<-h.asked
	if a := browser.get("/ui/c/orders/job"); !strings.Contains(a.body, "under way") {
		t.Fatalf("%s", a.body)
	}
	begin := time.Now()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	t.Logf("ended after %v", time.Since(begin).Round(time.Millisecond))
	close(h.let)
}
