//go:build unix

package kafkad

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/longshoremq/longshore/broker/brokertest/faultproxy"
	"github.com/longshoremq/longshore/integration/daemon"
)

// A node is one broker, which is a controller too, in a JVM of its own. Ports and data stay over restarts.
type node struct {
	id         int
	apache     artifacts
	dir        string
	properties string // its file
	process    *daemon.Process

	port, controller, second int
	proxy                    *faultproxy.Proxy // to the second listener
}

func (n *node) addr() string { return loopback(n.port) }

// rack is its own.
func (n *node) rack() string { return "rack-" + strconv.Itoa(n.id) }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// newNodes chooses ports for so many nodes.
func newNodes(a artifacts, dir string, count int) ([]*node, error) {
	taken := map[int]bool{}
	var nodes []*node
	for i := range count {
		n := &node{id: i + 1, apache: a, dir: filepath.Join(dir, strconv.Itoa(i+1)),
			process: daemon.New(fmt.Sprintf("Kafka node %d", i+1))}
		for _, port := range []*int{&n.port, &n.controller, &n.second} {
			for *port == 0 || taken[*port] {
				p, err := daemon.FreePort()
				if err != nil {
					return nil, err
				}
				*port = p
			}
			taken[*port] = true
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// format writes the node's properties and its empty data.
func (n *node) format(all []*node, cluster string, extra map[string]string) error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	n.properties = filepath.Join(n.dir, "server.properties")
	if err := os.WriteFile(n.properties, []byte(n.settings(all, extra)), 0o644); err != nil {
		return err
	}
	_, err := n.apache.run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", n.properties)
	return err
}

// settings is the node's server.properties: of a small broker whose waits are short.
func (n *node) settings(all []*node, extra map[string]string) string {
	var voters []string
	for _, v := range all {
		voters = append(voters, fmt.Sprintf("%d@%s", v.id, loopback(v.controller)))
	}
	replicas, inSync := strconv.Itoa(len(all)), strconv.Itoa(len(all)/2+1)
	settings := [][2]string{
		{"process.roles", "broker,controller"},
		{"node.id", strconv.Itoa(n.id)},
		{"broker.rack", n.rack()},
		{"controller.quorum.voters", strings.Join(voters, ",")},
		{"controller.listener.names", "CONTROLLER"},
		{"inter.broker.listener.name", "PLAINTEXT"},
		{"listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT"},
		{"listeners", "PLAINTEXT://" + n.addr() + ",PROXIED://" + loopback(n.second) + ",CONTROLLER://" + loopback(n.controller)},
		{"advertised.listeners", "PLAINTEXT://" + n.addr() + ",PROXIED://" + n.proxy.Addr()},
		{"log.dirs", filepath.Join(n.dir, "data")},

		{"default.replication.factor", replicas},
		{"min.insync.replicas", inSync},
		{"offsets.topic.replication.factor", replicas},
		{"offsets.topic.num.partitions", "5"},
		{"transaction.state.log.replication.factor", replicas},
		{"transaction.state.log.min.isr", inSync},
		{"transaction.state.log.num.partitions", "5"},
		{"share.coordinator.state.topic.replication.factor", replicas},
		{"share.coordinator.state.topic.min.isr", inSync},
		{"share.coordinator.state.topic.num.partitions", "5"},
		{"auto.create.topics.enable", "false"},

		// Kill tests want sessions of a second; the default refuses less than six.
		{"group.min.session.timeout.ms", "200"},
		{"group.consumer.min.session.timeout.ms", "200"},
		{"group.consumer.max.session.timeout.ms", "1800000"},
		{"group.consumer.min.heartbeat.interval.ms", "50"},
		{"group.initial.rebalance.delay.ms", "0"},
		// A killed broker's leaders move after this silence.
		{"broker.session.timeout.ms", "3000"},
		{"broker.heartbeat.interval.ms", "1000"},
		// A quarter of what an idle broker costs are records that say nothing, each half second.
		{"metadata.max.idle.interval.ms", "0"},
		{"log.retention.check.interval.ms", "500"},
		{"log.cleaner.backoff.ms", "500"},
		{"log.cleaner.dedupe.buffer.size", strconv.Itoa(4 << 20)},
		{"num.network.threads", "2"},
		{"num.io.threads", "4"},
		{"background.threads", "2"},
	}
	var b strings.Builder
	for _, s := range settings {
		if _, over := extra[s[0]]; !over {
			fmt.Fprintf(&b, "%s=%s\n", s[0], s[1])
		}
	}
	for k, v := range extra {
		fmt.Fprintf(&b, "%s=%s\n", k, v)
	}
	return b.String()
}

// launch starts the JVM; awaitReady waits until it serves.
func (n *node) launch() error {
	return n.process.Start(n.apache.command("512m", "kafka.Kafka", n.properties))
}

// awaitReady waits until the broker answers, and the cluster counts so many brokers, itself among them.
func (n *node) awaitReady(brokers int) error {
	return n.process.AwaitReady(readyLimit, func() bool {
		ids := liveBrokers(n.addr())
		return len(ids) >= brokers && ids[int32(n.id)]
	})
}

// readyLimit is long: where a dozen others want the processors, a JVM takes minutes to start.
const readyLimit = 5 * time.Minute

// liveBrokers is who takes part, according to the broker at addr; none if it does not answer.
func liveBrokers(addr string) map[int32]bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr); err != nil {
		return nil // spares the client its retries
	} else {
		_ = c.Close()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestRetries(0), kgo.DialTimeout(time.Second))
	if err != nil {
		return nil
	}
	defer client.Close()
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{}
	response, err := client.SeedBrokers()[0].Request(ctx, request)
	if err != nil {
		return nil
	}
	ids := map[int32]bool{}
	for _, b := range response.(*kmsg.MetadataResponse).Brokers {
		ids[b.NodeID] = true
	}
	return ids
}

// CutLog cuts a partition's log off at an offset, which begins a batch, on node i, which was killed: as a power cut does. All of
// the log has to be in its first segment.
func (k *Cluster) CutLog(i int, topic string, partition int, at int64) error {
	name := filepath.Join(k.nodes[i].dir, "data", fmt.Sprintf("%s-%d", topic, partition), "00000000000000000000.log")
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	size := 0
	for len(b)-size > 12 && int64(binary.BigEndian.Uint64(b[size:])) < at {
		size += 12 + int(binary.BigEndian.Uint32(b[size+8:]))
	}
	return os.Truncate(name, int64(size))
}
