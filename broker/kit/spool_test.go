package kit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/broker/kit"
)

// A spool is a broker such as a folder of files is one: whoever renames a file has it, for as long as he touches it again before
// a lease is over.
type spool struct {
	lease time.Duration

	mu           sync.Mutex
	files        []*spooled
	down         bool
	fails        int // settles that are to fail
	pulls, beats int64
}

// A spooled is one file.
type spooled struct {
	name  string
	out   broker.Outgoing
	owner string
	until time.Time // when others may have it
	count int32     // how often somebody was given it
	done  bool
}

func (s *spool) add(ms ...broker.Outgoing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range ms {
		s.files = append(s.files, &spooled{name: fmt.Sprintf("%06d", len(s.files)), out: m})
	}
}

// take gives an owner some files that nobody has.
func (s *spool) take(owner string, n int, bytes int64) (taken []spooled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulls++
	now := time.Now()
	for _, f := range s.files {
		if len(taken) == n || bytes <= 0 {
			break
		}
		if f.done || f.owner != "" && now.Before(f.until) {
			continue
		}
		f.owner, f.until = owner, now.Add(s.lease)
		f.count++
		bytes -= int64(len(f.out.Value))
		taken = append(taken, *f)
	}
	return taken
}

// file is the one of a name.
func (s *spool) file(name string) *spooled {
	i, _ := slices.BinarySearchFunc(s.files, name, func(f *spooled, name string) int { return strings.Compare(f.name, name) })
	return s.files[i]
}

// touch says of each file whether the owner has it still.
func (s *spool) touch(owner string, names []string) (has []bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beats++
	for _, name := range names {
		f := s.file(name)
		mine := f.owner == owner && !f.done
		if mine {
			f.until = time.Now().Add(s.lease)
		}
		has = append(has, mine)
	}
	return has
}

func (s *spool) settle(owner string, settles []kit.Settle[string]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 {
		s.fails--
		return errAway
	}
	for _, x := range settles {
		f := s.file(x.ID)
		switch {
		case x.Acked:
			f.done = true
		case f.owner == owner && f.count == x.Count:
			f.owner = ""
			if !x.Ran {
				f.count--
			}
		}
	}
	return nil
}

// leave gives back all that an owner has.
func (s *spool) leave(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if f.owner == owner {
			f.owner = ""
		}
	}
}

func (s *spool) each(f func(*spooled)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.files {
		f(one)
	}
}

// A spoolSource is an adapter for it, of the kit's parts.
type spoolSource struct {
	spool      *spool
	name       string
	life       *kit.Life
	events     *kit.EventQueue
	wake, send kit.Bell
	asking     chan struct{} // has one element while Receive asks
	sending    chan struct{} // and while somebody sends
	keeper     broker.Keeper

	mu      sync.Mutex
	gate    kit.Gate
	pauses  kit.Pauses
	out     *kit.Deliveries[string]
	ordered bool
	end     error // what Receive says
	cut     brokertest.Direction
	dead    bool
}

const spoolPause = 5 * time.Millisecond

func newSpoolSource(s *spool, name string) *spoolSource {
	x := &spoolSource{
		spool: s, name: name, life: kit.NewLife("spool"), events: kit.NewEventQueue(), wake: kit.NewBell(), send: kit.NewBell(),
		asking: make(chan struct{}, 1), sending: make(chan struct{}, 1), gate: kit.Gate{Eager: true},
	}
	x.out = kit.NewDeliveries[string](s.lease, &x.gate)
	_, x.keeper = broker.NewClaim("", -1, x)
	return x
}

// exchange is a question to the spool, over a network that can be broken.
func (x *spoolSource) exchange(ask func() error) (asked time.Time, err error) {
	reaches := func(way brokertest.Direction) bool {
		x.spool.mu.Lock()
		down := x.spool.down
		x.spool.mu.Unlock()
		x.mu.Lock()
		defer x.mu.Unlock()
		return !down && !x.dead && x.cut != way && x.cut != brokertest.Both
	}
	asked, err = time.Now(), errAway
	if reaches(brokertest.ToBroker) {
		err = ask()
	}
	if !reaches(brokertest.FromBroker) || !reaches(brokertest.ToBroker) {
		time.Sleep(x.spool.lease / 10) // no answer comes
		err = errAway
	}
	if err != nil {
		x.events.Lost(err)
	} else {
		x.events.Found(asked)
	}
	return asked, err
}

func never(error) bool { return false }

func (x *spoolSource) Open(ctx context.Context, o broker.Options) (broker.Traits, error) {
	if err := x.life.Begin(o); err != nil {
		return broker.Traits{}, err
	}
	x.events.Observe(o.Observe)
	x.change(func() {
		x.ordered = o.Ordered
		x.gate.SetBudget(o.Budget)
	})
	ctx, free := x.life.While(ctx)
	defer free()
	if err := kit.Retry(ctx, spoolPause, func(context.Context) error {
		defer x.events.Tell()
		_, err := x.exchange(func() error { return nil })
		return err
	}, never); err != nil {
		return broker.Traits{}, x.life.Fail(err)
	}
	if err := x.life.Await(ctx, o); err != nil {
		return broker.Traits{}, x.life.Fail(err)
	}
	err := x.life.Launch(func(run func(func())) {
		run(func() { x.events.Run(x.life.Context()) })
		run(func() { x.send.Serve(x.life.Context(), spoolPause, x.flush) })
		run(x.keep)
	})
	if err == nil {
		x.events.Say(broker.Event{Kind: broker.Assigned, Claim: x.keeper.Claim()})
		x.events.Tell()
	}
	return broker.Traits{Attempts: broker.AtMost}, err
}

// change changes what may be asked for.
func (x *spoolSource) change(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
	x.wake.Ring()
}

func (x *spoolSource) Receive(dst []broker.Message) (int, error) {
	for {
		n, bytes, err := x.room(len(dst))
		if err != nil {
			return 0, err
		}
		if n > 0 {
			if n := x.ask(n, bytes, dst); n > 0 {
				return n, nil
			}
		}
		select {
		case <-x.wake:
		case <-time.After(spoolPause):
		}
	}
}

func (x *spoolSource) room(most int) (n int, bytes int64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, bytes, ok := x.gate.Room()
	if !ok || x.end != nil || x.pauses.Has("") {
		return 0, 0, x.end
	}
	return min(n, most), bytes, nil
}

func (x *spoolSource) ask(n int, bytes int64, dst []broker.Message) (got int) {
	select {
	case x.asking <- struct{}{}:
		defer func() { <-x.asking }()
	case <-x.life.Context().Done():
		return 0
	}
	var taken []spooled
	asked, err := x.exchange(func() error { taken = x.spool.take(x.name, n, bytes); return nil })
	if err != nil {
		return 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range taken {
		d, fresh := x.out.Arrive(f.name, int64(len(f.out.Value)), f.count, asked)
		if !fresh {
			continue
		}
		if !x.ordered && (x.end != nil || x.pauses.Has("")) {
			x.out.Return(d)
			continue
		}
		if token, ok := x.out.HandOut(d); ok {
			dst[got] = f.message(d, token, x.keeper.Claim())
			got++
		}
	}
	x.send.Ring()
	return got
}

func (f *spooled) message(d *kit.Delivery[string], token uint64, c *broker.Claim) broker.Message {
	return broker.Message{
		Topic: f.out.Topic, Partition: -1, Offset: -1, Name: f.name, Key: slices.Clone(f.out.Key), Value: slices.Clone(f.out.Value),
		Headers: broker.NewHeaders(f.out.Headers...), Token: token, Claim: c, Attempt: max(1, d.Count), Runs: d.Runs,
	}
}

// keep extends leases.
func (x *spoolSource) keep() {
	tick := time.NewTicker(x.spool.lease / 10)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-x.life.Context().Done():
		}
		if x.life.Context().Err() != nil { // an answer that does not come takes as long as a tick: both may be there
			return
		}
		x.mu.Lock()
		due := x.out.Due()
		x.mu.Unlock()
		var names []string
		for _, d := range due {
			names = append(names, d.ID)
		}
		var has []bool
		asked, err := x.exchange(func() error { has = x.spool.touch(x.name, names); return nil })
		if err != nil {
			continue
		}
		x.mu.Lock()
		for i, d := range due {
			if has[i] {
				d.Lease.Renew(asked)
			} else {
				d.Lease.Lose(asked)
			}
		}
		x.mu.Unlock()
	}
}

// flush sends what is settled.
func (x *spoolSource) flush(context.Context) error {
	x.sending <- struct{}{}
	defer func() { <-x.sending }()
	for {
		settles := x.unsent()
		if len(settles) == 0 {
			return nil
		}
		_, err := x.exchange(func() error { return x.spool.settle(x.name, settles) })
		x.mu.Lock()
		if err != nil {
			x.out.Again(settles)
		} else {
			x.unconfirmed(x.out.Sent(settles))
		}
		x.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (x *spoolSource) unsent() []kit.Settle[string] {
	x.mu.Lock()
	defer x.mu.Unlock()
	settles, late := x.out.Unsent(50)
	x.unconfirmed(late)
	return settles
}

func (x *spoolSource) unconfirmed(n int64) {
	if n > 0 {
		x.events.Say(broker.Event{Kind: broker.Unconfirmed, Claim: x.keeper.Claim(), N: n, Err: errAway})
	}
}

var errOthers = fmt.Errorf("spool: settling: %w", broker.ErrForeign)

func (x *spoolSource) Ack(c *broker.Claim, tokens []uint64) error {
	if c.State != x {
		return errOthers
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.settled()
	return x.out.Ack(tokens)
}

func (x *spoolSource) Nack(c *broker.Claim, backs []broker.Back) error {
	if c.State != x {
		return errOthers
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.settled()
	_, err := x.out.Nack(backs)
	return err
}

func (x *spoolSource) settled() {
	x.send.Ring()
	if wake, _ := x.gate.Feed(); wake {
		x.wake.Ring()
	}
}

func (x *spoolSource) Pause(topics ...string) error  { return x.pause(x.pauses.Pause, topics) }
func (x *spoolSource) Resume(topics ...string) error { return x.pause(x.pauses.Resume, topics) }

func (x *spoolSource) pause(f func(...string), topics []string) error {
	if len(topics) > 0 {
		return errors.ErrUnsupported
	}
	x.change(func() { f() })
	return nil
}

func (x *spoolSource) SetBudget(b broker.Budget) { x.change(func() { x.gate.SetBudget(b) }) }

func (x *spoolSource) Stop() {
	x.life.Stop()
	x.change(func() { x.end = fmt.Errorf("spool: receiving: %w", broker.ErrClosed) })
}

func (x *spoolSource) Close(ctx context.Context) error {
	x.Stop()
	return x.life.Close(func() error {
		x.mu.Lock()
		x.out.Fence()
		x.mu.Unlock()
		x.keeper.End(broker.ErrClosed)
		x.events.Say(broker.Event{Kind: broker.Ended, Claim: x.keeper.Claim(), Err: broker.ErrClosed})
		select {
		case x.asking <- struct{}{}: // what came after the end would be nobody's
		case <-ctx.Done():
		}
		err := kit.Retry(ctx, spoolPause, x.leave, never)
		if err != nil {
			x.abandon()
		}
		return err
	}, func() {})
}

func (x *spoolSource) leave(ctx context.Context) error {
	if err := x.flush(ctx); err != nil {
		return err
	}
	_, err := x.exchange(func() error { x.spool.leave(x.name); return nil })
	return err
}

func (x *spoolSource) abandon() {
	x.sending <- struct{}{}
	defer func() { <-x.sending }()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unconfirmed(x.out.Abandon())
}

// TestSpool: an adapter that stands on Deliveries and has no more than the broker's own in it passes the conformance suite.
func TestSpool(t *testing.T) {
	const shared = "a process may take any file that nobody touches, and nobody takes a claim"
	const none = "files do not come and go here, but by those who settle them"
	brokertest.Run(t, brokertest.Harness{
		New: newSpoolSystem, Traits: broker.Traits{Attempts: broker.AtMost}, Lease: 400 * time.Millisecond, Bubble: true,
		NoPartitions: true, LateAcks: true, KeepsRuns: true, StopHandsOver: true,
		Goroutines: []string{"kit_test.(*spoolSource)"},
		Cannot: map[string]string{
			"Floors": "nothing is committed by position", "Revoke": shared, "Steal": shared, "Bounce": shared,
			"Undecodable": "any file is a message", "Trim": none, "Recreate": none, "Publisher": "the suite alone produces",
			"Misconfigured": "there is nothing that could be refused", "EndReceive": "there is nothing that could be refused",
			"SlowSettles": "an exchange takes no time", "Freeze": "it runs in the test's process",
		},
	})
}

func newSpoolSystem(_ testing.TB, setup brokertest.Setup) *brokertest.System {
	s := &spool{lease: 400 * time.Millisecond}
	if setup.Lease != 0 {
		s.lease = setup.Lease
	}
	locked := func(f func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
	}
	sys := &brokertest.System{
		Produce: func(_ testing.TB, _ int, ms ...broker.Outgoing) { s.add(ms...) },
		Unsettled: func(testing.TB) (n int64) {
			s.each(func(f *spooled) {
				if !f.done {
					n++
				}
			})
			return n
		},
		Down:      func(testing.TB) { locked(func() { s.down = true }) },
		Up:        func(testing.TB) { locked(func() { s.down = false }) },
		Redeliver: func(_ testing.TB, m *broker.Message) { locked(func() { s.file(m.ID()).owner = "" }) },
		ForgetSettles: func(testing.TB) {
			s.each(func(f *spooled) {
				if f.done {
					f.done, f.owner = false, ""
				}
			})
		},
		FailSettles: func(_ testing.TB, n int) { locked(func() { s.fails = n }) },
		Pulls:       func(testing.TB) (n int64) { locked(func() { n = s.pulls }); return n },
		Heartbeats:  func(testing.TB) (n int64) { locked(func() { n = s.beats }); return n },
	}
	for i := range setup.Topics {
		sys.Topics = append(sys.Topics, fmt.Sprintf("folder-%d", i))
	}
	joined := 0
	sys.Join = func(testing.TB) *brokertest.Process {
		joined++
		x := newSpoolSource(s, fmt.Sprintf("process-%d", joined))
		set := func(d brokertest.Direction) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.cut = d
		}
		return &brokertest.Process{
			Source: x, Cut: set, Heal: func() { set(0) },
			Kill: func() {
				x.change(func() { x.dead = true })
				past, cancel := context.WithCancel(context.Background())
				cancel()
				_ = x.Close(past)
			},
		}
	}
	return sys
}
