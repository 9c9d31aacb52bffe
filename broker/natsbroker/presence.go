package natsbroker

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kit"
	"github.com/longshoremq/longshore/internal/chance"
)

// shareSubject begins the subjects at which processes say that they are there.
const shareSubject = "longshore.share."

// answerWithin is in which time a greeting is answered: several that come together have one answer.
const answerWithin = 200 * time.Millisecond

// presence tells the other processes of a consumer that this one is there, and hears them: core NATS, by the same connection, so
// that who is cut off is heard by nobody. Safe for concurrent use.
type presence struct {
	link    *link
	subject string
	heard   kit.Bell // this process heard itself
	greeted kit.Bell // another one wants to know who is there

	over *nats.Conn // that it listens over; of whoever calls say

	mu    sync.Mutex
	peers *peers
	left  bool
}

// newPresence makes one. The subject is without the JetStream domain: who is in it need not name it, and who is not has to.
func newPresence(c *Config, l *link) *presence {
	return &presence{
		link: l, subject: shareSubject + c.Stream + "." + c.Consumer, heard: kit.NewBell(), greeted: kit.NewBell(),
		peers: newPeers(rand.Text()),
	}
}

// open says that this process is there until it hears itself: it may publish, and listen, and so may hear the others. It fails
// where the server says that it may not.
func (p *presence) open(ctx context.Context) error {
	for tries := 1; ; tries++ {
		asked := time.Now()
		if err := p.say(); err != nil {
			return err
		}
		select {
		case <-p.heard:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("natsbroker: telling others, at %s, that this process is there: %w", p.subject, context.Cause(ctx))
		case <-time.After(beatEvery):
		}
		d := p.link.denial.Load()
		if d == nil || d.at.Before(asked) {
			continue
		}
		// A word of the subject may be our password, and not shown; and another right may be missing just then, once.
		if strings.Contains(d.err.Error(), p.subject) || tries >= 3 {
			return fmt.Errorf("natsbroker: sharing limits: this user has to be allowed to publish and subscribe to %s: %w", p.subject,
				d.err)
		}
	}
}

// run says again and again that this process is there, until ctx ends.
func (p *presence) run(ctx context.Context) {
	for {
		p.mu.Lock()
		every := p.peers.every()
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-p.greeted: // many may be, one soon after the other
			if !sleep(ctx, chance.Below(answerWithin)) {
				return
			}
		case <-time.After(every):
		}
		_ = p.say() // what fails is said again, and has the connection's own warnings
	}
}

// say says once that this process is there. What does not leave while there is no connection is not said.
func (p *presence) say() error {
	nc := p.link.conn()
	word := p.word(time.Now())
	if nc == nil || !nc.IsConnected() || word == "" {
		return nil
	}
	if p.over != nc {
		if _, err := nc.Subscribe(p.subject, func(m *nats.Msg) { p.hear(string(m.Data)) }); err != nil {
			return fmt.Errorf("natsbroker: subscribing to %s: %w", p.subject, err)
		}
		p.over = nc
	}
	if err := nc.Publish(p.subject, []byte(word+" "+p.peers.me)); err != nil {
		return fmt.Errorf("natsbroker: publishing to %s: %w", p.subject, err)
	}
	return nil
}

// word is what there is to be said; empty: nothing any more.
func (p *presence) word(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.left:
		return ""
	case p.peers.greets(now):
		return wordHello
	}
	return wordHere
}

// hear takes what a process said.
func (p *presence) hear(text string) {
	word, id, ok := said(text)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case word == wordGone:
		p.peers.leaves(id)
		return
	case id == p.peers.me && p.left:
		return
	case id == p.peers.me:
		p.heard.Ring()
	case word == wordHello:
		p.greeted.Ring()
	}
	p.peers.hears(id, time.Now())
}

// leave tells the others that this process goes. It has no share from then on.
func (p *presence) leave() {
	p.mu.Lock()
	p.left = true
	p.peers.leaves(p.peers.me)
	p.mu.Unlock()
	if nc := p.link.conn(); nc != nil && nc.IsConnected() {
		_ = nc.Publish(p.subject, []byte(wordGone+" "+p.peers.me)) // who does not hear it counts this process for a while
		_ = nc.FlushTimeout(beatEvery)
	}
}

// share is which part of the work this process has now, and whether it has left.
func (p *presence) share() (s broker.Share, left bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peers.share(time.Now()), p.left
}
