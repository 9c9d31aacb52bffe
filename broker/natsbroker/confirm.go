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
	waiting map[uint64]confirmation
	denied  error     // why no answers come
	again   time.Time // when to ask for them again, then
}

// A confirmation is one that is waited for.
type confirmation struct {
	answer chan error
	odd    error // what came instead
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

const (
	// mostLine is the longest line before a message: a server that gets a longer one closes the connection without a word. It is
	// the default of max_control_line, which no server tells.
	mostLine = 4096
	// mostSizes is what stands in it besides the subjects: two sizes, and blanks.
	mostSizes = 24
)

// publish sends m. What became of it comes on the channel, unless forget is called.
func (c *confirmations) publish(m *nats.Msg) (id uint64, answer chan error, err error) {
	answer = make(chan error, 1)
	c.mu.Lock()
	c.last++
	id, nc := c.last, c.of
	m.Reply = c.prefix + strconv.FormatUint(id, 10)
	if n := len(m.Subject) + len(m.Reply) + mostSizes; n > mostLine {
		c.mu.Unlock()
		return 0, nil, fmt.Errorf("%w: it has %d bytes, and with where it is answered more than the %d that a server takes",
			nats.ErrBadSubject, len(m.Subject), mostLine)
	}
	if c.waiting == nil {
		c.waiting = map[uint64]confirmation{}
	}
	c.waiting[id] = confirmation{answer: answer}
	c.mu.Unlock()
	if err := nc.PublishMsg(m); err != nil {
		c.forget(id)
		return 0, nil, err
	}
	return id, answer, nil
}

func (c *confirmations) forget(id uint64) confirmation {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[id]
	delete(c.waiting, id)
	return w
}

// odd takes an answer that is no stream's. Who else listens to the subject may answer, too, and sooner; the stream's may come.
func (c *confirmations) odd(id uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w, ok := c.waiting[id]; ok {
		w.odd = err
		c.waiting[id] = w
	}
}

func (c *confirmations) arrived(m *nats.Msg) {
	i := strings.LastIndexByte(m.Subject, '.')
	id, err := strconv.ParseUint(m.Subject[i+1:], 10, 64)
	if err != nil {
		return
	}
	err = stored(m)
	if errors.Is(err, errOdd) {
		c.odd(id, err)
		return
	}
	if w := c.forget(id); w.answer != nil {
		w.answer <- err
	}
}

// lost answers all that wait: the connection is gone, and with it perhaps their confirmation.
func (c *confirmations) lost(err error) {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	for _, w := range waiting {
		w.answer <- fmt.Errorf("perhaps stored: %w", err)
	}
}

// errOdd says that an answer is not one of a stream.
var errOdd = errors.New("others answer to the subject")

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
		return fmt.Errorf("%w: %w", errOdd, err)
	}
	if answer.Error != nil {
		return answer.Error
	}
	if answer.Stream == "" {
		return errOdd
	}
	return nil
}
