package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
)

func (w *world) publisher() broker.Publisher {
	w.Helper()
	w.need("Publisher", w.sys.Publisher != nil)
	p := w.sys.Publisher(w)
	w.Cleanup(func() {
		ctx, cancel := within(w.h.Patience)
		defer cancel()
		_ = p.Close(ctx)
	})
	return p
}

// publish proves that a publish which returned nil is stored, with key, value and headers as they were given, and that nothing of
// it is kept: the caller may write over its slices.
func publish(w *world) {
	p := w.publisher()
	m := w.join()
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	want := make(map[string]broker.Outgoing)
	for range 5 {
		var ms []broker.Outgoing
		for range 4 {
			name := w.newID()
			value := []byte("value of " + name)
			ms = append(ms, broker.Outgoing{Topic: w.sys.Topics[0], Key: []byte("key"), Value: value, Headers: []broker.Header{
				{Key: headerID, Value: []byte(name)}, {Key: "Case-Twice", Value: []byte("first")},
				{Key: "Case-Empty", Value: []byte{}}, {Key: "Case-Twice", Value: []byte("second")},
			}})
			kept := ms[len(ms)-1]
			kept.Value = []byte(string(value))
			want[name] = kept
		}
		if err := p.Publish(ctx, ms); err != nil {
			w.Fatalf("Publish: %v", err)
		}
		for _, o := range ms {
			clear(o.Value)
		}
	}
	for range want {
		msg := m.take(1)[0]
		comparison{w, w.h}.same(msg, want[id(msg)])
		m.mustAck(msg)
	}
	w.settled()
	w.handledOnce()
}

// publishWithID proves that the id of a message is stored with it, where readers find it: by it they drop what was published
// twice, and a replay finds what it has sent. A broker with a place of its own for ids shows it there.
func publishWithID(w *world) {
	p := w.publisher()
	m := w.join()
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	name := w.newID()
	o := broker.Outgoing{Topic: w.sys.Topics[0], Value: []byte(name), ID: "id of " + name,
		Headers: []broker.Header{{Key: headerID, Value: []byte(name)}}}
	if err := p.Publish(ctx, []broker.Outgoing{o}); err != nil {
		w.Fatalf("Publish: %v", err)
	}
	msg := m.take(1)[0]
	own, _ := msg.Headers.Get(broker.HeaderID)
	brokers, _ := msg.Headers.Get(natsID)
	if string(own) != o.ID && string(brokers) != o.ID {
		w.Fatalf("published with the ID %q, and it came with %s: %q", o.ID, broker.HeaderID, own)
	}
	m.mustAck(msg)
	w.settled()
	w.handledOnce()
}

// natsID is JetStream's place for ids.
const natsID = "Nats-Msg-Id"

// publishToPartition proves that a message whose partition was chosen is stored there, whatever its key is, and that one for a
// partition which is not there is stored all the same. A broker without partitions has no say in that.
func publishToPartition(w *world) {
	p := w.publisher()
	m := w.join()
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	want := make(map[string]int32)
	for i := range int32(12) {
		name, to := w.newID(), i%4 // there is no 3
		o := broker.Outgoing{Topic: w.sys.Topics[0], Key: []byte(name), Value: []byte(name), Partition: &to,
			Headers: []broker.Header{{Key: headerID, Value: []byte(name)}}}
		if i%3 == 0 {
			o.Key = nil
		}
		want[name] = to
		if err := p.Publish(ctx, []broker.Outgoing{o}); err != nil {
			w.Fatalf("Publish: %v", err)
		}
	}
	for range want {
		msg := m.take(1)[0]
		if to := want[id(msg)]; to < 3 && msg.Partition >= 0 && msg.Partition != to {
			w.Errorf("message %s is in partition %d, want %d", id(msg), msg.Partition, to)
		}
		m.mustAck(msg)
	}
	w.settled()
	w.handledOnce()
}

// publishTooLarge proves that a message which the broker will never take says ErrRefused, by its index, and that the others are
// stored.
func publishTooLarge(w *world) {
	p := w.publisher()
	if w.sys.MaxMessageBytes <= 0 {
		w.h.skip(w, "System.MaxMessageBytes is 0: the broker takes any size")
	}
	m := w.join()
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	ms := w.filled(w.sys.Topics[0], 1, 100)
	ms = append(ms, broker.Outgoing{Topic: w.sys.Topics[0], Value: make([]byte, w.sys.MaxMessageBytes+1)})
	ms = append(ms, w.filled(w.sys.Topics[0], 1, 100)...)
	err := p.Publish(ctx, ms)
	var pe *broker.PublishError
	if !errors.As(err, &pe) || len(pe.Errs) != len(ms) {
		w.Fatalf("Publish: %v, want a *broker.PublishError with %d entries", err, len(ms))
	}
	if pe.Errs[0] != nil || pe.Errs[2] != nil || !errors.Is(pe.Errs[1], broker.ErrRefused) {
		w.Errorf("errors by index are %v, want ErrRefused for the second alone", pe.Errs)
	}
	m.mustAck(m.take(2)...)
	w.settled()
	w.handledOnce()
}

// publishNowhere proves that a message without a topic is refused for good, and keeps none of the others back: no retry would
// find out where it was to go.
func publishNowhere(w *world) {
	p := w.publisher()
	m := w.join()
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	ms := append(w.filled(w.sys.Topics[0], 1, 100), broker.Outgoing{Value: []byte("to nowhere")})
	err := p.Publish(ctx, ms)
	var pe *broker.PublishError
	if !errors.As(err, &pe) || len(pe.Errs) != len(ms) || pe.Errs[0] != nil || !errors.Is(pe.Errs[1], broker.ErrRefused) {
		w.Fatalf("Publish: %v, want a *broker.PublishError with ErrRefused for the second alone", err)
	}
	m.mustAck(m.take(1)...)
	w.settled()
	w.handledOnce()
}

// publishRepeated proves that a message with the same ID is stored once.
func publishRepeated(w *world) {
	p := w.publisher()
	if !w.h.DropsRepeatedIDs {
		w.h.skip(w, "Harness.DropsRepeatedIDs is not set: readers drop repeated ones")
	}
	m := w.join()
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	ms := w.filled(w.sys.Topics[0], 2, 100)
	ms[0].ID, ms[1].ID = "one", "two"
	for range 3 {
		if err := p.Publish(ctx, ms); err != nil {
			w.Fatalf("Publish: %v", err)
		}
	}
	m.mustAck(m.take(2)...)
	m.quiet(w.moment(), "its ID was stored before")
	w.settled()
	w.handledOnce()
}

// publishWhileDown proves that a publish which nobody confirmed says so, and not that it was refused; and that it can be tried
// again.
func publishWhileDown(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	p := w.publisher()
	ms := w.filled(w.sys.Topics[0], 1, 100)
	w.sys.Down(w)
	short, cancel := within(w.lease)
	defer cancel()
	if err := p.Publish(short, ms); err == nil || errors.Is(err, broker.ErrRefused) {
		w.Errorf("Publish without a broker: %v, want an error that is not ErrRefused (does Down reach the Publisher?)", err)
	}
	w.sys.Up(w)
	m := w.join()
	ctx, cancel2 := within(w.h.Patience)
	defer cancel2()
	w.eventually("a message was stored", func() bool { // another one each time: who is not confirmed may be stored
		return p.Publish(ctx, w.filled(w.sys.Topics[0], 1, 100)) == nil
	})
	m.mustAck(m.take(1)...)
	stop := m.handle(func(msg *broker.Message) { m.mustAck(msg) })
	defer stop()
	w.settled()
}

// publisherClose proves that Close waits for publishes under way, that what said nil is stored, that later ones say ErrClosed,
// and that Close may be called again.
func publisherClose(w *world) {
	p := w.publisher()
	m := w.join()
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	stored := make(map[string]bool)
	for i := range 8 {
		all.Go(func() {
			for j := 0; ; j++ {
				ms := []broker.Outgoing{{Topic: w.sys.Topics[0], Value: []byte(fmt.Sprintf("p%d-%d", i, j))}}
				w.books.Produced(string(ms[0].Value))
				err := p.Publish(ctx, ms)
				if err == nil {
					mu.Lock()
					stored[string(ms[0].Value)] = true
					mu.Unlock()
					continue
				}
				if !errors.Is(err, broker.ErrClosed) {
					w.Errorf("Publish beside Close: %v, want nil or ErrClosed", err)
				}
				return
			}
		})
	}
	m.mustAck(m.take(8)...)
	for range 2 {
		if err := p.Close(ctx); err != nil {
			w.Errorf("Close: %v", err)
		}
	}
	all.Wait()
	if err := p.Publish(ctx, w.filled(w.sys.Topics[0], 1, 100)); !errors.Is(err, broker.ErrClosed) {
		w.Errorf("Publish after Close: %v, want ErrClosed", err)
	}
	stop := m.handle(func(msg *broker.Message) { m.mustAck(msg) })
	defer stop()
	for name := range stored {
		w.eventually("confirmed message "+name+" was handed out", func() bool { return w.books.Times(name) == 1 })
	}
	w.settled()
}

// publisherCloseWhileDown proves that a Close which does not want to wait any longer ends publishes that wait for the broker,
// though their own contexts never end.
func publisherCloseWhileDown(w *world) {
	w.need("Down", w.sys.Down != nil)
	w.need("Up", w.sys.Up != nil)
	used, fresh := w.publisher(), w.publisher()
	ctx, cancel := within(w.h.Patience)
	defer cancel()
	if err := used.Publish(ctx, w.filled(w.sys.Topics[0], 1, 100)); err != nil {
		w.Fatalf("Publish: %v", err)
	}
	w.sys.Down(w)
	for _, p := range []broker.Publisher{used, fresh} {
		done := make(chan error, 1)
		go func() {
			ms := w.filled(w.sys.Topics[0], 1, 100)
			for { // an adapter may give up sooner
				if err := p.Publish(context.Background(), ms); errors.Is(err, broker.ErrClosed) || ctx.Err() != nil {
					done <- err
					return
				}
			}
		}()
		time.Sleep(w.moment()) // so that it waits
		short, cancel := within(w.moment())
		_ = p.Close(short) // it may have nothing to wait for just then
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, broker.ErrClosed) {
				w.Errorf("Publish while Close did not wait any longer: %v, want ErrClosed", err)
			}
		case <-ctx.Done():
			w.Errorf("Publish waits on after Close")
		}
	}
	w.sys.Up(w)
}
