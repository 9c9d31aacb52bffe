package kafkabroker

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// The Transport routes by a list of brokers that it asks for itself, rarely: a consumer that has nothing to do would otherwise do
// little else. So what shows that its list is old makes it ask at once.

// discoveryPause is how long a new list is given to be of use: a broker that has just come is not known to all the others yet.
const discoveryPause = 250 * time.Millisecond

// misrouted takes note of an exchange that failed, and has the brokers found anew where another list may change that: the
// Transport knows of no such broker, has dialed where it is not any more, or took another for the controller.
func (c *cluster) misrouted(node int32, err error) {
	switch code := codeOf(err); {
	case code == kafka.BrokerNotAvailable, code == kafka.NotController:
		c.rediscover()
	case node == controllerNode && code == 0 && err != nil:
		c.rediscover()
	default:
		de := (*dialError)(nil)
		if !errors.As(err, &de) {
			return
		}
		c.mu.Lock()
		address, known := c.addresses[node]
		c.mu.Unlock()
		if known && address != de.address {
			c.rediscover()
		}
	}
}

// told takes the addresses of brokers, as one of them tells them. Where one has another than before, the Transport may go on with
// the old one, at which somebody else may be by now. One that was away is in no answer meanwhile, and may be elsewhere when it is
// back. All else that is known of those is forgotten, for brokers may come and go for ever.
func (c *cluster) told(brokers map[int32]string) {
	c.mu.Lock()
	moved := false
	for node, address := range brokers {
		was, known := c.last.Get(node)
		moved = moved || known && was != address
		c.last.Put(node, address)
	}
	c.addresses = brokers
	maps.DeleteFunc(c.versions, func(node int32, _ map[int16][2]int16) bool { return node >= 0 && brokers[node] == "" })
	c.mu.Unlock()
	c.throttles.keep(brokers, time.Now())
	if moved { // which is not said again
		c.transport.CloseIdleConnections()
	}
}

// has says whether the last answer that told the brokers had one.
func (c *cluster) has(node int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addresses[node] != ""
}

// rediscover makes the Transport find the brokers before it sends anything more. What is under way goes on.
func (c *cluster) rediscover() {
	now := time.Now()
	c.mu.Lock()
	due := now.Sub(c.found) >= discoveryPause
	if due {
		c.found = now
	}
	c.mu.Unlock()
	if due {
		c.transport.CloseIdleConnections()
	}
}

// anywhere is what the Transport dials for requests that any broker answers; dialAny takes one. Were it the brokers that the
// configuration names, nobody would learn of new leaders and coordinators while these are down, though all others run.
var anywhere = kafka.TCP("any-broker:0")

// dialAny connects to a broker.
func (c *cluster) dialAny(ctx context.Context, network string,
	open func(ctx context.Context, network, address string) (net.Conn, error)) (conn net.Conn, err error) {
	for _, address := range c.anyOf() {
		var e error
		if conn, e = open(ctx, network, address); e == nil {
			return conn, nil
		}
		if err == nil {
			err = e
		}
	}
	return nil, err
}

// anyOf are the addresses at which a broker may be, in the order in which they are tried. Those that brokers told of come last:
// what was told long ago may be somebody else's by now, and names are looked up anew. But where a broker takes connections and
// answers nothing, or a connection takes all the time that there is, those behind it would never be tried.
func (c *cluster) anyOf() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.named)
	for _, address := range c.addresses {
		if !slices.Contains(c.named, address) {
			all = append(all, address)
		}
	}
	mixed := all[:len(c.named)]
	if c.doubted {
		mixed = all
	}
	rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	return all
}

// doubt notes whether a request that any broker could answer was not answered.
func (c *cluster) doubt(failed bool) {
	c.mu.Lock()
	c.doubted = failed
	c.mu.Unlock()
}
