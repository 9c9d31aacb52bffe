package natsbroker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// confirmations takes the streams' answers to publishes. It is ours because the one in nats.go leaves a goroutine behind when its
// connection is closed at the wrong moment.
type confirmations struct {
	mu      sync.Mutex
	prefix  string // publishes carry prefix and a number as their reply subject
	of      *nats.Conn
	last    uint64
	waiting map[uint64]chan error
}

// use listens on nc, if it does not already.
func (c *confirmations) use(nc *nats.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nc {
		return nil
	}
	prefix := nc.NewInbox() + "."
	sub, err := nc.Subscribe(prefix+"*", c.arrived)
	if err != nil {
		return err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	c.of, c.prefix = nc, prefix
	return nil
}

// publish sends m. What became of it comes on the channel, unless forget is called.
func (c *confirmations) publish(m *nats.Msg) (id uint64, answer chan error, err error) {
	answer = make(chan error, 1)
	c.mu.Lock()
	c.last++
	id, nc := c.last, c.of
	m.Reply = c.prefix + strconv.FormatUint(id, 10)
	if c.waiting == nil {
		c.waiting = map[uint64]chan error{}
	}
	c.waiting[id] = answer
	c.mu.Unlock()
	if err := nc.PublishMsg(m); err != nil {
		c.forget(id)
		return 0, nil, err
	}
	return id, answer, nil
}

func (c *confirmations) forget(id uint64) chan error {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := c.waiting[id]
	delete(c.waiting, id)
	return answer
}

func (c *confirmations) arrived(m *nats.Msg) {
	i := strings.LastIndexByte(m.Subject, '.')
	id, err := strconv.ParseUint(m.Subject[i+1:], 10, 64)
	if err != nil {
		return
	}
	if answer := c.forget(id); answer != nil {
		answer <- stored(m)
	}
}

// lost answers all that wait: the connection is gone, and with it perhaps their confirmation.
func (c *confirmations) lost(err error) {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	for _, answer := range waiting {
		answer <- fmt.Errorf("perhaps stored: %w", err)
	}
}

// stored reads a stream's answer. nil: it has the message.
func stored(m *nats.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return nats.ErrNoResponders
	}
	var answer struct {
		Stream string              `json:"stream"`
		Error  *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fmt.Errorf("reading the stream's answer: %w", err)
	}
	if answer.Error != nil {
		return answer.Error
	}
	if answer.Stream == "" {
		return errors.New("the answer is not one of a stream")
	}
	return nil
}
