package kafkabroker

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestNamedBrokerGoes: the configuration names one broker. It goes, or stands still with its connections, and leaders and the
// coordinator are others by then. These were learned from it, and who knows them goes on: it need not come back.
func TestNamedBrokerGoes(t *testing.T) {
	t.Parallel()
	t.Run("refuses connections", func(t *testing.T) { testNamedBrokerGoes(t, false) })
	t.Run("takes them and says nothing", func(t *testing.T) { testNamedBrokerGoes(t, true) })
}

func testNamedBrokerGoes(t *testing.T, mute bool) {
	t.Parallel()
	ts := newTestSystem(t, 6, 1, kfake.NumBrokers(3))
	cfg := ts.config(ts.net.link())
	cfg.Brokers = cfg.Brokers[:1]
	var (
		mu    sync.Mutex
		conns []net.Conn
		gone  bool
	)
	dial := cfg.dial
	cfg.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if address != cfg.Brokers[0] {
			return dial(ctx, network, address)
		}
		if gone && mute {
			c, _ := net.Pipe()
			return c, nil
		}
		c, err := dial(ctx, network, address)
		if err == nil {
			conns = append(conns, c)
		}
		return c, err
	}
	r := startRunner(t, cfg)
	want := ts.put(t, ts.topics[0], 0, 30)
	eventually(t, "the first messages came", func() bool { return r.has(want) })
	if err := ts.cluster.RemoveNode(0); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	gone = true
	for _, c := range conns { // which the fake leaves open
		_ = c.Close()
	}
	mu.Unlock()
	want = append(want, ts.put(t, ts.topics[0], 30, 30)...)
	eventually(t, "all messages came after the named broker was gone", func() bool { return r.has(want) })
	eventually(t, "all is committed", func() bool { return ts.unsettled(t) == 0 })
}

// TestFailedBrokerIsNamed: a request that any broker answers goes to one that the configuration does not name, since the one that
// it names is gone, and gets no answer. The error has the address of who did not answer.
func TestFailedBrokerIsNamed(t *testing.T) {
	t.Parallel()
	ts := newTestSystem(t, 1, 1, kfake.NumBrokers(2))
	cfg := ts.config(ts.net.link())
	gone, other := cfg.Brokers[0], cfg.Brokers[1]
	cfg.Brokers = []string{gone}
	c, err := cfg.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer c.transport.CloseIdleConnections()
	c.told(map[int32]string{0: gone, 1: other})
	if err := ts.cluster.RemoveNode(0); err != nil {
		t.Fatal(err)
	}
	ts.net.breakAnswers(keyFindCoordinator, 1)
	w := writer{}
	w.str("g")
	w.i8(0)
	_, err = c.do(t.Context(), anyNode, keyFindCoordinator, 1, w.b)
	if err == nil || !strings.Contains(err.Error(), other) || strings.Contains(err.Error(), gone) {
		t.Errorf("%v; want the address %s, and not %s", err, other, gone)
	}
}
