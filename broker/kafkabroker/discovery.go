package kafkabroker

import (
	"errors"
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
// the old one, at which somebody else may be by now.
func (c *cluster) told(brokers map[int32]string) {
	c.mu.Lock()
	moved := false
	for node, address := range brokers {
		was, known := c.addresses[node]
		moved = moved || known && was != address
	}
	c.addresses = brokers
	c.mu.Unlock()
	if moved { // which is not said again
		c.transport.CloseIdleConnections()
	}
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
