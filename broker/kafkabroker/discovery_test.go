package kafkabroker

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A router dials, remembers where to, and may lead elsewhere.
type router struct {
	mu      sync.Mutex
	dialed  []string
	conns   []net.Conn
	instead map[string]string
}

func (r *router) dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	r.dialed = append(r.dialed, address)
	if other := r.instead[address]; other != "" {
		address = other
	}
	r.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		r.mu.Lock()
		r.conns = append(r.conns, conn)
		r.mu.Unlock()
	}
	return conn, err
}

// cut breaks all connections.
func (r *router) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
}

func (r *router) hasDialed(address string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.dialed, address)
}

// lead lets whoever dials an address come to another.
func (r *router) lead(from, to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instead = map[string]string{from: to}
}

// discovered are two brokers, and a cluster of ours that knows both.
func discovered(t *testing.T) (*kfake.Cluster, *cluster, *router) {
	t.Helper()
	c, r := startCluster(t, kfake.NumBrokers(2)), &router{}
	cl, err := Connection{Brokers: c.ListenAddrs()[:1], dial: r.dial}.withDefaults().connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.transport.CloseIdleConnections)
	for node := range int32(2) {
		if err := cl.reach(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	return c, cl, r
}

// reach asks a broker for something, after a look at the topics as the poller takes it.
func (c *cluster) reach(ctx context.Context, node int32) error {
	if _, err := c.topics(ctx, []string{}); err != nil {
		return err
	}
	_, err := c.do(ctx, node, keyAPIVersions, 0, nil)
	return err
}

// moveNode gives a broker another address, breaks all connections, and returns both.
func moveNode(t *testing.T, c *kfake.Cluster, r *router, node int32) (from, to string) {
	t.Helper()
	defer r.cut()
	before := c.ListenAddrs()
	if err := c.RemoveNode(node); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.AddNode(node, 0); err != nil {
		t.Fatal(err)
	}
	after := c.ListenAddrs()
	only := func(in, out []string) string {
		i := slices.IndexFunc(in, func(a string) bool { return !slices.Contains(out, a) })
		if i < 0 {
			t.Fatalf("brokers at %v are at %v now", before, after)
		}
		return in[i]
	}
	return only(before, after), only(after, before)
}

// TestNewBroker: a broker that came after the Transport has asked which there are is found when it is needed.
func TestNewBroker(t *testing.T) {
	c, cl, _ := discovered(t)
	if _, _, err := c.AddNode(7, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := cl.do(t.Context(), 7, keyAPIVersions, 0, nil); codeOf(err) != kafka.BrokerNotAvailable {
		t.Fatalf("the Transport asks by itself: %v", err) // then this test says nothing
	}
	eventually(t, "broker 7 is found", func() bool { return cl.reach(t.Context(), 7) == nil })
}

// TestBrokerElsewhere: a broker that has another address now is found there, as soon as others tell it.
func TestBrokerElsewhere(t *testing.T) {
	c, cl, r := discovered(t)
	moveNode(t, c, r, 1)
	eventually(t, "broker 1 answers", func() bool { return cl.reach(t.Context(), 1) == nil })
}

// TestAddressOfAnother: where a broker had its address another one may be by now, which answers, but has other partitions.
func TestAddressOfAnother(t *testing.T) {
	c, cl, r := discovered(t)
	other := c.ListenAddrs()[0]
	from, to := moveNode(t, c, r, 1)
	r.lead(from, other)
	eventually(t, "broker 1 answers", func() bool { return cl.reach(t.Context(), 1) == nil })
	if !r.hasDialed(to) {
		t.Errorf("broker 1 is at %s, and asked at %v", to, r.dialed)
	}
}

// TestAddressOfAnotherSinceAway: a look at the topics has found a broker away before it was elsewhere, and another one where it
// had been.
func TestAddressOfAnotherSinceAway(t *testing.T) {
	c, cl, r := discovered(t)
	other, from := c.ListenAddrs()[0], c.ListenAddrs()[1]
	if err := c.RemoveNode(1); err != nil {
		t.Fatal(err)
	}
	if _, err := cl.topics(t.Context(), []string{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.AddNode(1, 0); err != nil {
		t.Fatal(err)
	}
	to := c.ListenAddrs()[1]
	r.lead(from, other)
	r.cut()
	eventually(t, "broker 1 answers", func() bool { return cl.reach(t.Context(), 1) == nil })
	if !r.hasDialed(to) {
		t.Errorf("broker 1 is at %s, and asked at %v", to, r.dialed)
	}
}

// TestDialedElsewhere: the Transport dials an address that it learned of before a look has told of another.
func TestDialedElsewhere(t *testing.T) {
	c, cl, r := discovered(t)
	_, to := moveNode(t, c, r, 1)
	cl.mu.Lock()
	cl.addresses[1] = to // as if the first look had told it
	cl.mu.Unlock()
	eventually(t, "broker 1 answers", func() bool {
		_, err := cl.do(t.Context(), 1, keyAPIVersions, 0, nil)
		return err == nil
	})
}

// TestNewController: what only the controller does goes to the one that is it now, of which the Transport was not told, and which
// refuses what is not its to do.
func TestNewController(t *testing.T) {
	c, cl, _ := discovered(t)
	refused := 0
	c.ControlKey(keyCreateTopics, func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if refused++; refused > 1 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		of := kmsg.NewCreateTopicsResponseTopic()
		of.Topic, of.ErrorCode = "letters", int16(kafka.NotController)
		resp.Topics = append(resp.Topics, of)
		return resp, nil, true
	})
	looks := 0
	c.ControlKey(keyMetadata, func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		looks++
		return nil, nil, false
	})
	if err := cl.createLog(t.Context(), "letters"); codeOf(err) != kafka.NotController {
		t.Fatal(err)
	}
	if looks > 0 {
		t.Fatal("it was asked for the brokers before")
	}
	if err := cl.createLog(t.Context(), "letters"); err != nil {
		t.Fatal(err)
	}
	if looks < 2 { // one is to wait for the topic
		t.Error("the Transport was not told to ask which broker it is")
	}
}

// TestBrokersThatCameAndWent: of brokers that no answer has any more nothing is kept but where some of them were, and how long
// one of them takes nothing yet.
func TestBrokersThatCameAndWent(t *testing.T) {
	_, cl, _ := discovered(t)
	now := time.Now()
	for node := range int32(50) {
		cl.mu.Lock()
		cl.versions[node] = map[int16][2]int16{keyFetch: {0, 12}}
		cl.mu.Unlock()
		cl.throttles.note(node, -time.Hour) // which is over
		cl.throttles.fetched(node, true, now)
		cl.told(map[int32]string{node: "there:9092"})
	}
	cl.throttles.note(50, time.Hour)
	cl.told(map[int32]string{51: "there:9092"})
	if n, dry, until := len(cl.versions), len(cl.throttles.dry), len(cl.throttles.until); n > 1 || dry > 0 || until != 1 {
		t.Errorf("the versions of %d brokers and quotas of %d and %d are kept", n, dry, until)
	}
}

// TestSendersOfBrokersThatAreGone: a publisher keeps no sender to a broker that is gone and has nothing to send any more. One
// that has goes on.
func TestSendersOfBrokersThatAreGone(t *testing.T) {
	_, cl, _ := discovered(t)
	s := newSenders(cl, t.Context(), byMurmur2)
	busy := s.to(0)
	busy.active = true
	for node := range int32(50) {
		cl.told(map[int32]string{node: "there:9092"})
		s.to(node)
	}
	if len(s.by) > 3 || s.by[0] != busy || s.by[49] == nil {
		t.Errorf("%d senders are kept, want that which sends, the last, and perhaps the one before", len(s.by))
	}
}
