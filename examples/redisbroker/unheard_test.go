package redisbroker

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/longshoremq/longshore/broker"
)

// An unheard has the answer to the first settle get lost, when the message has come again.
type unheard struct {
	hook
	once  sync.Once
	again chan struct{}
}

func (u *unheard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && cmd.Name() == "evalsha" && cmd.Args()[1] == settleScript.Hash() {
			u.once.Do(func() {
				<-u.again
				err = errToldToFail
				cmd.SetErr(err)
			})
		}
		return err
	}
}

// TestGivenBackUnheard: a give-back of what no handler had arrives, its answer gets lost, and the message comes again with the
// same count. It stays here then: the give-back that is tried again is not for it.
func TestGivenBackUnheard(t *testing.T) {
	t.Run("mini", func(t *testing.T) { givenBackUnheard(t, miniServer(t)) })
	t.Run("real", func(t *testing.T) { givenBackUnheard(t, sharedServer(t)) })
}

func givenBackUnheard(t *testing.T, addr string) {
	u := &unheard{again: make(chan struct{})}
	opts := &redis.Options{Addr: addr}
	const topic, group = "unheard", "unheard-group"
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { rdb.Del(context.Background(), topic); _ = rdb.Close() })
	src, err := NewSource(Config{Redis: opts, Group: group, Topics: []string{topic}, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	src.link.rdb.AddHook(u)
	t.Cleanup(func() { _ = src.Close(context.Background()) })
	settleScript.Load(t.Context(), rdb) // so that the first try is the only one
	o := broker.Options{Budget: broker.Budget{Messages: 10, Bytes: 1 << 20}, Observe: func(broker.Event) {}}
	if _, err := src.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	receive := func() *broker.Message {
		dst := make([]broker.Message, 1)
		if _, err := src.Receive(dst); err != nil {
			t.Fatal(err)
		}
		return &dst[0]
	}
	add := func() {
		if err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: topic, Values: []any{fieldValue, "text"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	add()
	first := receive()
	if err := src.Nack(first.Claim, []broker.Back{{Token: first.Token}}); err != nil {
		t.Fatal(err)
	}
	again := receive()
	if again.Name != first.Name {
		t.Fatalf("%s came, want %s again", again.Name, first.Name)
	}
	add()
	next := receive()
	if err := src.Ack(next.Claim, []uint64{next.Token}); err != nil {
		t.Fatal(err)
	}
	close(u.again)
	pending := func() []redis.XPendingExt {
		all := &redis.XPendingExtArgs{Stream: topic, Group: group, Start: "-", End: "+", Count: 10}
		ps, err := rdb.XPendingExt(t.Context(), all).Result()
		if err != nil {
			t.Fatal(err)
		}
		return ps
	}
	ps := pending()
	for end := time.Now().Add(30 * time.Second); len(ps) != 1 && time.Now().Before(end); ps = pending() {
		time.Sleep(time.Millisecond) // until the ack behind it is there
	}
	if len(ps) != 1 || ps[0].ID != again.Name || ps[0].Consumer != src.link.me {
		t.Errorf("pending are %v, want %s alone, with who runs it (%s)", ps, again.Name, src.link.me)
	}
}
