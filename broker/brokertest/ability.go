package brokertest

import (
	"fmt"
	"maps"
	"slices"
)

// An ability is a function of System or Process that may be nil, for a reason.
type ability struct {
	name  string
	there bool
	// undoes is what it is of no use without: the reason for that one is enough.
	undoes string
}

func abilities(s *System, p *Process) []ability {
	return []ability{
		{name: "Floors", there: s.Floors != nil},
		{name: "Pulls", there: s.Pulls != nil},
		{name: "Heartbeats", there: s.Heartbeats != nil},
		{name: "Publisher", there: s.Publisher != nil},
		{name: "Outputs", there: s.Outputs != ""},
		{name: "Stored", there: s.Stored != nil, undoes: "Outputs"},
		{name: "Down", there: s.Down != nil},
		{name: "Up", there: s.Up != nil, undoes: "Down"},
		{name: "Revoke", there: s.Revoke != nil},
		{name: "Steal", there: s.Steal != nil},
		{name: "Bounce", there: s.Bounce != nil},
		{name: "Redeliver", there: s.Redeliver != nil},
		{name: "ForgetSettles", there: s.ForgetSettles != nil},
		{name: "FailSettles", there: s.FailSettles != nil},
		{name: "SlowSettles", there: s.SlowSettles != nil},
		{name: "Trim", there: s.Trim != nil},
		{name: "Recreate", there: s.Recreate != nil},
		{name: "Undecodable", there: s.Undecodable != nil},
		{name: "Misconfigured", there: s.Misconfigured != nil},
		{name: "Kill", there: p.Kill != nil},
		{name: "Freeze", there: p.Freeze != nil},
		{name: "Thaw", there: p.Thaw != nil, undoes: "Freeze"},
		{name: "Cut", there: p.Cut != nil},
		{name: "Heal", there: p.Heal != nil, undoes: "Cut"},
		{name: "EndReceive", there: p.EndReceive != nil},
	}
}

// unknown names the entries of Cannot that are no ability: a reason under a wrong name excuses nothing.
func (h *Harness) unknown() (findings []string) {
	known := make(map[string]bool)
	for _, a := range abilities(&System{}, &Process{}) {
		known[a.name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(h.Cannot)) {
		if !known[name] {
			findings = append(findings, fmt.Sprintf("Cannot[%q] is the name of no optional function of System or Process", name))
		}
	}
	return findings
}

// harnessIsWhole proves that the harness has each function, or says why not: nothing is left out by oversight.
func harnessIsWhole(w *world) {
	for _, a := range abilities(w.sys, w.process().p) {
		if emits := a.name == "Outputs" || a.name == "Stored"; emits && !w.h.Traits.Atomic {
			continue
		}
		if !a.there && w.h.Cannot[a.name] == "" && (a.undoes == "" || w.h.Cannot[a.undoes] == "") {
			w.Errorf("brokertest harness: %s is nil, and Harness.Cannot[%q] does not say why", a.name, a.name)
		}
	}
}

// leaseIsHeeded proves that New heeds Setup.Lease: what a process had out when it died stays away for longer than Harness.Lease.
// Else the cases that tell "given back" from "ran out" prove nothing.
func leaseIsHeeded(w *world) {
	a := w.process(budget(10, 1<<20))
	w.need("Kill", a.p.Kill != nil)
	a.open()
	a.receive()
	b := w.join(budget(10, 1<<20))
	w.produce(0, 10)
	w.eventually("all messages are out", func() bool { return a.out()+b.out() == 10 })
	if b.out() > a.out() {
		a, b = b, a
	}
	a.kill()
	for _, of := range byClaim(b.hand.untook()) {
		b.mustAck(of...)
	}
	b.quiet(3*w.h.Lease, "a process that died had it, and Setup.Lease is long: New has to heed it")
}
