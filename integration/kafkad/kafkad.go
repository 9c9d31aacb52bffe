//go:build unix

// Package kafkad runs Apache Kafka as processes of its own, from its Maven artifacts (integration/pom.xml pins them), so that
// brokers can be killed, frozen and restarted on the same data and ports, and reached over a network that can be cut. It needs a
// JDK and Maven; where they cannot be had, tests that kill no broker run on an in-process fake, which is announced, and the
// others are skipped. With LONGSHORE_REAL set both fail instead.
package kafkad

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sync/errgroup"

	"github.com/longshoremq/longshore/broker/brokertest/faultproxy"
)

// Config says what kind of cluster to start.
type Config struct {
	// Nodes is 1 or 3. With 3, topics have three replicas, of which two must confirm. Defaults to 1.
	Nodes int
	// Properties come over those of the brokers' files.
	Properties map[string]string
}

// A Cluster is one or more brokers. Its methods are for one goroutine at a time.
type Cluster struct {
	// Name says what it is: Apache Kafka, somebody's KAFKA_BROKERS, or the fake.
	Name string

	dir     string
	nodes   []*node
	fake    *kfake.Cluster
	brokers []string // where nodes is empty
}

// Start starts brokers on fresh data. They end with the test. Where they cannot be had the test is skipped; with LONGSHORE_REAL
// set it fails instead.
func Start(t testing.TB, c Config) *Cluster {
	t.Helper()
	k, err := start(c)
	switch {
	case errors.Is(err, errUnavailable) && os.Getenv("LONGSHORE_REAL") == "":
		t.Skipf("NO REAL BROKER: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(k.logs())
		}
		k.close()
	})
	return k
}

var shared struct {
	sync.Mutex
	cluster *Cluster
	err     error
}

// Shared is one single-node cluster for all tests of a process, which run one after the other: KAFKA_BROKERS (addresses, with
// commas) where that is set, else one that is started with the first call, else the in-process fake. Tests use topics and groups
// of their own on it (see Unique). Where it has Controls they may kill and freeze its node too: the next call finds it running
// and its network healed. A process that called it ends with StopShared.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil && shared.err == nil {
		shared.cluster, shared.err = openShared(os.Getenv("KAFKA_BROKERS"), os.Getenv("LONGSHORE_REAL") != "")
	}
	if shared.err == nil {
		shared.err = shared.cluster.revive()
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(shared.cluster.logs())
		}
	})
	return shared.cluster
}

// StopShared ends what Shared started.
func StopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster != nil {
		shared.cluster.close()
	}
	shared.cluster = nil
}

func openShared(brokers string, demandReal bool) (*Cluster, error) {
	if brokers != "" {
		return &Cluster{Name: "KAFKA_BROKERS", brokers: strings.Split(brokers, ",")}, nil
	}
	k, err := start(Config{})
	switch {
	case !errors.Is(err, errUnavailable):
		return k, err
	case demandReal:
		return nil, fmt.Errorf("LONGSHORE_REAL is set, and there is no Kafka: %w", err)
	}
	fmt.Fprintf(os.Stderr, "\n*** NO REAL KAFKA: tests run on an in-process fake of its protocol (kfake), which proves less. %v "+
		"***\n\n", err)
	return newFake()
}

func newFake() (*Cluster, error) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(200*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("starting the fake Kafka: %w", err)
	}
	return &Cluster{Name: "kfake, NOT REAL", fake: fake, brokers: fake.ListenAddrs()}, nil
}

// Fake is the in-process fake, for what is also tested on the real one. It ends with the test.
func Fake(t testing.TB) *Cluster {
	t.Helper()
	k, err := newFake()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	return k
}

// start starts a cluster of our own and waits until all of it serves.
func start(c Config) (*Cluster, error) {
	a, err := apache()
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		k, err := startOn(a, c)
		if err == nil {
			return k, nil
		}
		// Between the choice of a port and the JVM's use of it lie seconds, in which another process may take it.
		again := strings.Contains(k.logs(), "Address already in use") && try < 3
		k.close()
		if !again {
			return nil, err
		}
	}
}

// startOn returns the cluster also with an error, as far as it came.
func startOn(a artifacts, c Config) (k *Cluster, err error) {
	k = &Cluster{Name: "Apache Kafka"}
	if k.dir, err = os.MkdirTemp("", "longshore-kafka-"); err != nil {
		return k, err
	}
	if k.nodes, err = newNodes(a, k.dir, cmp.Or(c.Nodes, 1)); err != nil {
		return k, err
	}
	for _, n := range k.nodes {
		if n.proxy, err = faultproxy.New(loopback(n.second)); err != nil {
			return k, err
		}
	}
	cluster := clusterID()
	if err := k.each(func(n *node) error { return n.format(k.nodes, cluster, c.Properties) }); err != nil {
		return k, err
	}
	for _, n := range k.nodes {
		if err := n.launch(); err != nil {
			return k, err
		}
	}
	if err := k.each(func(n *node) error { return n.awaitReady(len(k.nodes)) }); err != nil {
		return k, err
	}
	return k, k.awaitCoordinator()
}

// clusterID is a random one in Kafka's form. It does not begin with a dash: Kafka's tools would take it for an option.
func clusterID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	id[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(id)
}

func (k *Cluster) each(do func(*node) error) error {
	var g errgroup.Group
	for _, n := range k.nodes {
		g.Go(func() error { return do(n) })
	}
	return g.Wait()
}

func (k *Cluster) close() {
	for _, n := range k.nodes {
		n.process.Kill()
		if n.proxy != nil {
			n.proxy.Close()
		}
	}
	if k.fake != nil {
		k.fake.Close()
	}
	if k.dir != "" {
		_ = os.RemoveAll(k.dir)
	}
}

func (k *Cluster) logs() string {
	var b strings.Builder
	for _, n := range k.nodes {
		fmt.Fprintf(&b, "end of the log of Kafka node %d:\n%s\n", n.id, n.process.Log())
	}
	return b.String()
}

// Real says whether this is Kafka, and not the fake.
func (k *Cluster) Real() bool { return k.fake == nil }

// Brokers are the addresses of all brokers, host:port.
func (k *Cluster) Brokers() []string {
	addrs := append([]string(nil), k.brokers...)
	for _, n := range k.nodes {
		addrs = append(addrs, n.addr())
	}
	return addrs
}

// Controls says whether the nodes are ours to kill, freeze and cut off: all methods below want that.
func (k *Cluster) Controls() bool { return len(k.nodes) > 0 }

// Proxies are ways to the nodes over which clients that begin there stay: each broker names them the proxies' addresses.
func (k *Cluster) Proxies() []*faultproxy.Proxy {
	var proxies []*faultproxy.Proxy
	for _, n := range k.nodes {
		proxies = append(proxies, n.proxy)
	}
	return proxies
}

// revive undoes what a test that failed half-way left behind.
func (k *Cluster) revive() error {
	for _, n := range k.nodes {
		n.proxy.Heal()
		_ = n.process.Thaw() // no harm to one that runs or is gone
		if n.process.Running() {
			continue
		}
		if err := n.launch(); err != nil {
			return err
		}
	}
	return k.each(func(n *node) error { return n.awaitReady(len(k.nodes)) })
}

// Kill sends SIGKILL to node i, counted from 0, and waits for its end. What it wrote stays, as after a crash of the process (not
// of the machine).
func (k *Cluster) Kill(i int) { k.nodes[i].process.Kill() }

// Stop ends node i in good order: it hands its partitions over first.
func (k *Cluster) Stop(i int) error { return k.nodes[i].process.Stop(readyLimit) }

// Restart starts node i, which does not run, on its data and ports, and waits until it serves again.
func (k *Cluster) Restart(i int) error {
	if err := k.nodes[i].launch(); err != nil {
		return err
	}
	return k.nodes[i].awaitReady(1)
}

// Freeze stops node i with SIGSTOP: connections stay, nothing answers.
func (k *Cluster) Freeze(i int) error { return k.nodes[i].process.Freeze() }

// Thaw goes on after Freeze.
func (k *Cluster) Thaw(i int) error { return k.nodes[i].process.Thaw() }

// Rack is the rack of node i: each has its own.
func (k *Cluster) Rack(i int) string { return k.nodes[i].rack() }

// Pid is the id of node i's process.
func (k *Cluster) Pid(i int) int { return k.nodes[i].process.Pid() }

// Unique makes a name for a topic or a group that nobody has used on this cluster.
func Unique(name string) string { return strings.ToLower(name + "-" + rand.Text()[:8]) }
