package natsbroker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// confirmations takes the streams' answers to publishes. It is ours because the one in nats.go leaves a goroutine behind when its
// connection is closed at the wrong moment.
type confirmations struct {
	mu      sync.Mutex
	prefix  string // publishes carry prefix and a number as their reply subject
	of      *nats.Conn
	sub     *nats.Subscription
	last    uint64
	waiting map[uint64]chan error
	denied  error     // why no answers come
	again   time.Time // when to ask for them again, then
}

// deafFor is for how long nothing is published where no answers may be had: each time it would be stored, and nobody would know.
const deafFor = 5 * time.Second

// use listens on nc, if it does not already.
func (c *confirmations) use(nc *nats.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.denied != nil && time.Now().Before(c.again):
		return c.denied
	case c.denied == nil && c.of == nc:
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
	if c.denied != nil && c.of == nc {
		_ = c.sub.Unsubscribe()
	}
	c.of, c.sub, c.prefix, c.denied = nc, sub, prefix, nil
	return nil
}

// refused takes that the server lets nobody subscribe to some subject. Where it is ours, no answer will come.
func (c *confirmations) refused(err error) {
	c.mu.Lock()
	ours := c.prefix != "" && strings.Contains(unredacted(err), `Subscription to "`+c.prefix)
	if ours {
		c.denied = fmt.Errorf("the answers of streams may not be listened to: %v", err) // which refuses no message: not wrapped
		c.again = time.Now().Add(deafFor)
		err = c.denied
	}
	c.mu.Unlock()
	if ours {
		c.lost(err)
	}
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
