package natsbroker

import (
	"fmt"
	"testing"
)

// A pull request is told when the account does not have it any more: it was answered in full, or the server said that it is over.
func TestPullMeter(t *testing.T) {
	ended := func(es []endedPull) (s string) {
		for _, e := range es {
			s += fmt.Sprintf("%d:%v;", e.sent, e.err)
		}
		return s
	}
	for name, c := range map[string]struct {
		do   func(p *pulls) []endedPull
		want string
	}{
		"all messages came": {func(p *pulls) []endedPull {
			p.arrived(10)
			if early := p.meter.answered(p.requests, 0, status{}); early != nil {
				t.Errorf("told %v, and one message is under way", early)
			}
			p.arrived(10)
			return p.meter.answered(p.requests, 0, status{})
		}, "7:<nil>;"},
		"its time is over": {func(p *pulls) []endedPull {
			st := status{verdict: pullEnded, counted: true, messages: 2, bytes: 100}
			p.ended(1, st)
			return p.meter.answered(p.requests, 1, st)
		}, "7:<nil>;"},
		"refused": {func(p *pulls) []endedPull {
			st := status{verdict: pullRefused, text: "409 Exceeded MaxWaiting"}
			p.ended(1, st)
			return p.meter.answered(p.requests, 1, st)
		}, "7:natsbroker: a pull ended with 409 Exceeded MaxWaiting;"},
		"void": {func(p *pulls) []endedPull {
			p.leave()
			return p.meter.answered(p.requests, 0, status{})
		}, ""},
		"nobody measures": {func(p *pulls) []endedPull {
			p.meter = pullMeter{}
			p.meter.send(2, 9)
			p.ended(1, status{verdict: pullEnded})
			return p.meter.answered(p.requests, 1, status{})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pulls{credit: credit{gate: gateOf(100, 1000)}, meter: pullMeter{on: true}}
			p.sent(request{1, 2, 100})
			p.meter.send(1, 7)
			if got := ended(c.do(p)); got != c.want {
				t.Errorf("told %q, want %q", got, c.want)
			}
		})
	}
}
