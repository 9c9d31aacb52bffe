//go:build unix

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker/brokertest/faultproxy"
)

// overProxy runs one consumer behind a proxy, does something to the network, and heals it. Nothing may be handled twice: the
// consumer never lost its memory, and its lease, where it is a session, outlasts the fault.
func overProxy(t *testing.T, k kind, during func(*testing.T, *field, *faultproxy.Proxy)) string {
	t.Helper()
	f := k.newField(t, k.own(t))
	f.calm(t)
	return fieldOverProxy(t, f, faultRate, during)
}

func fieldOverProxy(t *testing.T, f *field, rate int, during func(*testing.T, *field, *faultproxy.Proxy)) string {
	t.Helper()
	proxy, url := f.on.proxy(t)
	f.config.URL = url
	f.startConsumers(t, 1)
	f.load = f.startLoad(t, rate, 0)
	f.consumers[0].says(t, "handled", 1)
	f.moves(t, rate)
	began := time.Now()
	during(t, f, proxy)
	lasted := time.Since(began)
	proxy.Heal()
	back := f.moves(t, 1)
	f.moves(t, rate)
	a := f.finish(t)
	a.noDuplicates(t)
	return fmt.Sprintf("%v, back %v after healing; %v", lasted.Round(10*time.Millisecond), back.Round(time.Millisecond), a)
}

// standsStill sees to it that a fault bites: at its end, nothing is handled for half a second.
func (f *field) standsStill(t *testing.T) {
	t.Helper()
	before := len(f.entries(t))
	time.Sleep(500 * time.Millisecond)
	if n := len(f.entries(t)) - before; n != 0 {
		t.Errorf("%d messages handled in the last half second of the fault: it does not bite", n)
	}
}

func cut(t *testing.T, k kind) string {
	return overProxy(t, k, func(t *testing.T, f *field, p *faultproxy.Proxy) {
		p.Refuse(true)
		p.Reset()
		time.Sleep(2500 * time.Millisecond)
		f.standsStill(t)
	})
}

func resetStorm(t *testing.T, k kind) string {
	return overProxy(t, k, func(t *testing.T, _ *field, p *faultproxy.Proxy) {
		resets := 0
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			resets += p.Reset()
		}
		if resets < 3 {
			t.Errorf("%d connections reset in 3 s: no storm", resets)
		}
	})
}

func holdToClient(t *testing.T, k kind) string {
	return overProxy(t, k, func(t *testing.T, f *field, p *faultproxy.Proxy) {
		p.Set(faultproxy.ToClient, faultproxy.Shape{Hold: true})
		time.Sleep(5500 * time.Millisecond)
		f.standsStill(t)
	})
}

// holdAcks has an AckWait shorter than the second for which the consumer asks ahead, and a connection that is not found dead
// meanwhile. So what is finished is delivered again, on the same connection on which its acks are stuck.
func holdAcks(t *testing.T, k kind) string {
	f := k.newField(t, k.own(t))
	f.config.Ping, f.config.Heartbeat, f.config.Lease = time.Minute, 10*time.Second, 400*time.Millisecond
	// A slow load: what was asked for before the fault must outlast the AckWait, or the server may deliver nothing more. Where this
	// process gets no processor for a while, messages come in a heap and use that up: then the fault is put once more.
	return fieldOverProxy(t, f, faultRate/10, func(t *testing.T, f *field, p *faultproxy.Proxy) {
		again := 0
		for try := 0; try < 4 && again == 0; try++ {
			if try > 0 {
				p.Set(faultproxy.ToServer, faultproxy.Shape{})
				time.Sleep(time.Second)
			}
			p.Set(faultproxy.ToServer, faultproxy.Shape{Hold: true})
			for begin := time.Now(); time.Since(begin) < 6*time.Second; time.Sleep(100 * time.Millisecond) {
				again = max(again, f.onNATS().mustInfo(t).NumRedelivered)
			}
		}
		if again == 0 {
			t.Error("the broker delivered nothing again although no ack could arrive: the fault does not bite")
		}
	})
}

func halfOpen(t *testing.T, k kind) string {
	return overProxy(t, k, func(t *testing.T, f *field, p *faultproxy.Proxy) {
		f.overtakes = true
		p.SetBoth(faultproxy.Shape{Hold: true})
		time.Sleep(lengths(5500*time.Millisecond, 20*time.Second))
		f.standsStill(t)
	})
}

func slowNetwork(t *testing.T, k kind) string {
	return overProxy(t, k, func(_ *testing.T, _ *field, p *faultproxy.Proxy) {
		p.SetBoth(faultproxy.Shape{BytesPerSecond: 4 << 10, Slice: 7})
		time.Sleep(lengths(3*time.Second, 10*time.Second))
	})
}

// holdCommits lets fetches under way and what was fetched before go on, while no request gets through. What was held arrives in
// the end, in any order: each try to commit went out on a connection of its own.
func holdCommits(t *testing.T, k kind) string {
	return overProxy(t, k, func(t *testing.T, f *field, p *faultproxy.Proxy) {
		f.overtakes = true
		p.Set(faultproxy.ToServer, faultproxy.Shape{Hold: true})
		time.Sleep(5500 * time.Millisecond)
		f.standsStill(t)
	})
}

// slowAnswers is a far broker. Whoever takes the wait for a fetch for the limit of its answer gets nothing here.
func slowAnswers(t *testing.T, k kind) string {
	return overProxy(t, k, func(t *testing.T, f *field, p *faultproxy.Proxy) {
		p.SetBoth(faultproxy.Shape{Latency: 300 * time.Millisecond})
		f.moves(t, 3*faultRate)
	})
}

// shortLives lets each connection live for 0.5 to 1.5 s, whatever is under way on it.
func shortLives(t *testing.T, k kind) string {
	f := k.newField(t, k.own(t))
	f.calm(t)
	return fieldOverProxy(t, f, killRate, func(t *testing.T, f *field, p *faultproxy.Proxy) {
		p.Live(500*time.Millisecond, 1500*time.Millisecond)
		p.Reset()
		f.moves(t, lengths(3_000, 10_000))
		for range 20 { // a consumer of NATS has one connection, and a short row ends in the lives of two
			if p.Died() >= 3 {
				return
			}
			f.moves(t, 500)
		}
		t.Errorf("%d connections died: the fault does not bite", p.Died())
	})
}
