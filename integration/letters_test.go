//go:build unix

package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest/faultproxy"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/integration/ledger"
)

// A letter is a dead letter as it is stored: the entry that its message would have in the ledger, and the name by which a copy is
// told.
type letter struct {
	ledger.Entry
	name string
}

func newLetter(t *testing.T, body []byte, seq int64, name string) letter {
	t.Helper()
	id, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
	if err != nil {
		t.Errorf("a dead letter without a number: %v", err)
	}
	return letter{ledger.Entry{ID: id, Seq: seq}, name}
}

// newLetters is the publisher of dead letters in a consumer process.
func newLetters(c consumerConfig, clock *ledger.Reporter) (broker.Publisher, error) {
	p, err := newPublisher(c, time.Second)
	if err == nil && clock != nil {
		p = stamped{p, clock}
	}
	if err == nil && c.LetterPause > 0 {
		p = pausing{p, c.LetterPause}
	}
	if err == nil && c.StayAt {
		p = staying{p}
	}
	return p, err
}

// newPublisher waits for each answer for as long as confirm.
func newPublisher(c consumerConfig, confirm time.Duration) (broker.Publisher, error) {
	if c.Broker == "kafka" {
		return kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: kafkabroker.Connection{
			Brokers: strings.Split(c.LettersURL, ","), DialTimeout: 2 * time.Second, RequestTimeout: confirm}})
	}
	return natsbroker.NewPublisher(natsbroker.PublisherConfig{AckTimeout: confirm,
		Connection: natsbroker.Connection{URLs: []string{c.LettersURL},
			ReconnectWait: 50 * time.Millisecond, MaxReconnectWait: time.Second, DialTimeout: 2 * time.Second}})
}

// stamped stamps dead letters that were confirmed, before the product hears of it.
type stamped struct {
	broker.Publisher
	clock interface{ Letter(seq int64) error }
}

func (s stamped) Publish(ctx context.Context, ms []broker.Outgoing) error {
	err := s.Publisher.Publish(ctx, ms)
	var each *broker.PublishError
	if err != nil && !errors.As(err, &each) {
		return err
	}
	for i, m := range ms {
		if each != nil && each.Errs[i] != nil {
			continue
		}
		seq, err := originOf(m)
		if err == nil {
			err = s.clock.Letter(seq)
		}
		if err != nil {
			return fmt.Errorf("stamping a dead letter: %w", err)
		}
	}
	return err
}

// What is confirmed beside others that are not is stamped, too: the product goes on with its key.
func TestStampedAmongOthers(t *testing.T) {
	some := &broker.PublishError{Errs: []error{nil, errors.New("no answer"), nil}}
	ms := make([]broker.Outgoing, len(some.Errs))
	for i := range ms {
		ms[i].Headers = []broker.Header{{Key: broker.HeaderOriginalOffset, Value: strconv.AppendInt(nil, int64(i), 10)}}
	}
	for want, err := range map[string]error{"[0 1 2]": nil, "[0 2]": some, "[]": broker.ErrRefused} {
		var got stampList
		if was := (stamped{answering{err: err}, &got}).Publish(t.Context(), ms); was != err || fmt.Sprint(got) != want {
			t.Errorf("after %v: %v is stamped, want %v; said %v", err, got, want, was)
		}
	}
}

type stampList []int64

func (l *stampList) Letter(seq int64) error {
	*l = append(*l, seq)
	return nil
}

// answering answers all the same.
type answering struct {
	broker.Publisher
	err error
}

func (a answering) Publish(context.Context, []broker.Outgoing) error { return a.err }

// originOf is where a dead letter's message stood, in one number.
func originOf(m broker.Outgoing) (int64, error) {
	header := func(key string) string {
		for _, h := range m.Headers {
			if h.Key == key {
				return string(h.Value)
			}
		}
		return ""
	}
	offset, err := strconv.ParseInt(header(broker.HeaderOriginalOffset), 10, 64)
	if err != nil || header(broker.HeaderOriginalPartition) == "" {
		return offset, err
	}
	partition, err := strconv.ParseInt(header(broker.HeaderOriginalPartition), 10, 32)
	return ledger.Seq(int32(partition), offset), err
}

// staying never returns from a publish that was confirmed: what comes after it does not come.
type staying struct{ broker.Publisher }

func (s staying) Publish(ctx context.Context, ms []broker.Outgoing) error {
	err := s.Publisher.Publish(ctx, ms)
	if err != nil {
		return err
	}
	say("stays")
	select {}
}

// pausing is slow: letters gather meanwhile.
type pausing struct {
	broker.Publisher
	pause time.Duration
}

func (p pausing) Publish(ctx context.Context, ms []broker.Outgoing) error {
	time.Sleep(p.pause)
	if len(ms) > 1 {
		say("together")
	}
	err := p.Publisher.Publish(ctx, ms)
	time.Sleep(p.pause)
	return err
}

// TestKillAmongLetters: SIGKILL of one of two consumers, again and again, while each second message goes to the dead letters,
// several with one call: before they are stored, among them, or before their messages are acked. What was on its way is there
// again, and nothing is gone.
func TestKillAmongLetters(t *testing.T) {
	variant(t)
	kills := lengths(4, 12)
	onEach(t, func(t *testing.T, k kind) {
		f := k.newField(t, k.start(t))
		f.everFailing(t)
		f.config.FailOneIn, f.config.LetterPause = 2, 30*time.Millisecond
		a := f.runKills(t, killRow{Row: "letters_sigkill", Discipline: longshoreConsumer, Kills: kills},
			func(f *field, t *testing.T, i int) {
				f.consumers[i%2].says(t, "together", 1)
				f.killConsumer(t, i)
			})
		a.mustKeepAll(t)
		names, copies := map[int64]string{}, 0
		for _, l := range f.letters(t) {
			if was, again := names[l.ID]; again {
				if copies++; was != l.name {
					t.Errorf("number %d is named %q, before %q", l.ID, l.name, was)
				}
			}
			names[l.ID] = l.name
		}
		verdict(t, "f39", fmt.Sprintf("SIGKILL among dead letters that are published together, %d times", kills),
			fmt.Sprintf("%d numbers in dead letters, %d copies; %v", len(names), copies, a))
	})
}

// everFailing lets every tenth number fail for good, and its dead letter go to a new place.
func (f *field) everFailing(t *testing.T) {
	t.Helper()
	f.config.FailRuns = 1 << 30
	f.config.Letters, f.config.LettersURL = f.on.lettersTo(t), f.config.URL
}

// letters are the dead letters so far.
func (f *field) letters(t *testing.T) []letter { return f.on.letters(t, f.config.Letters) }

// copies is how many dead letters there are of each number. Those of one number have the same name, as whoever drops copies needs
// it.
func (f *field) copies(t *testing.T) map[int64]int {
	t.Helper()
	n, name := map[int64]int{}, map[int64]string{}
	for _, l := range f.letters(t) {
		n[l.ID]++
		if was, again := name[l.ID]; l.name == "" || again && was != l.name {
			t.Errorf("a dead letter of number %d is named %q, before %q", l.ID, l.name, was)
		}
		name[l.ID] = l.name
		if l.ID%10 != 0 {
			t.Errorf("number %d is among the dead letters, and did not fail", l.ID)
		}
	}
	return n
}

// lettersDown: dead letters cannot be published for a while, twice. Messages stay until they are: also those whose process is
// killed meanwhile.
func lettersDown(t *testing.T, k kind) string {
	f := k.newField(t, k.own(t))
	f.everFailing(t)
	proxy, url := f.on.proxy(t)
	f.config.LettersURL = url
	f.startConsumers(t, 1)
	f.load = f.startLoad(t, faultRate, 0)
	eventually(t, "there are dead letters", func() bool { return len(f.letters(t)) >= 3 })

	down := lengths(3*time.Second, 10*time.Second)
	outage := func(begin func()) (before int) {
		begin()
		time.Sleep(200 * time.Millisecond) // what was under way has arrived
		before = len(f.letters(t))
		f.moves(t, faultRate/2) // the others go on
		time.Sleep(down)
		if n := len(f.letters(t)) - before; n != 0 {
			t.Errorf("%d dead letters arrived while none could: the fault does not bite", n)
		}
		return before
	}
	before := outage(func() { proxy.SetBoth(faultproxy.Shape{Hold: true}) }) // publishes fail, for want of an answer
	proxy.Reset()                                                            // and what was held back is gone
	proxy.Heal()
	eventually(t, "dead letters arrive again", func() bool { return len(f.letters(t)) > before+int(down.Seconds())*faultRate/20 })
	outage(func() { proxy.Refuse(true); proxy.Reset() }) // publishers wait for a connection
	f.consumers[0].kill()
	proxy.Heal()
	f.consumers = nil
	f.startConsumers(t, 1)
	f.moves(t, faultRate)
	a := f.finish(t)
	return fmt.Sprintf("%v without, twice, with a SIGKILL in the second; %d numbers in dead letters; %v", down, len(f.copies(t)), a)
}

// letterTwice: SIGKILL between the publish of a dead letter and the ack of its message. The letter is there, and perhaps twice,
// never not at all.
func letterTwice(t *testing.T, k kind) string {
	f := k.newField(t, k.start(t))
	f.everFailing(t)
	f.config.StayAt = true
	f.startConsumers(t, 1)
	f.load = f.startLoad(t, faultRate, 200)
	f.load.finish()
	f.consumers[0].says(t, "stays", 1)
	f.consumers[0].kill()
	stored := len(f.letters(t))
	f.config.StayAt, f.consumers = false, nil
	f.startConsumers(t, 1)
	a := f.finish(t)
	twice := 0
	copies := f.copies(t)
	for _, n := range copies {
		if n > 1 {
			twice++
		}
	}
	if len(copies) != 20 {
		t.Errorf("%d numbers in dead letters, want 20", len(copies))
	}
	// JetStream drops the copy by its name; on Kafka it is there, and its name tells.
	if k.name == "nats" && twice != 0 || k.name == "kafka" && twice == 0 {
		t.Errorf("%d numbers are there more than once; the killed process had published %d", twice, stored)
	}
	return fmt.Sprintf("%d published before the SIGKILL, %d numbers in dead letters, %d of them twice; %v", stored, len(copies),
		twice, a)
}
