//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A suiteMutant is a mistake that an adapter could make, in the adapter in memory. The conformance suite has to see it there,
// by the cases that are named.
type suiteMutant struct {
	name  string
	edits []edit
	on    string // the variants of membroker's TestConformance that have to fail, each, with blanks between
	by    string // the cases, with | between; one of them has to
}

// An edit changes a file below the module's root.
type edit struct {
	file string
	old  string // must stand there exactly once
	new  string
}

const (
	claims   = "broker/membroker/claim.go"
	holding  = "broker/membroker/holding.go"
	holdings = "broker/membroker/holdings.go"
	loop     = "broker/membroker/loop.go"
	source   = "broker/membroker/source.go"
	figures  = "broker/membroker/figures.go"
	outputs  = "broker/membroker/emit.go"
	flush    = "broker/membroker/flush.go"
	window   = "broker/membroker/window.go"
	both     = "partitioned leased"
)

// silent: settles that did not hold are not reported.
var silent = edit{holding, "	if n > 0 {\n		sh.events.Say(", "	if n < 0 {\n		sh.events.Say("}

var suiteMutants = []suiteMutant{
	{"a give-back that comes late takes the message from who has it now", []edit{{holding,
		"	h.overtaken()\n	cs.out += int(i)\n", "	cs.out += int(i)\n"}}, "leased", "LateGiveBack"},
	{"a give-back is said again when its answer got lost", []edit{{flush,
		"		b.backs = nil // sent: a second time could pull them from who has them then\n", ""}}, "leased", "GiveBackRepeated"},
	{"the first give-back of a call speaks for all", []edit{{holdings, "			cs.giveBack(o, b)\n", "			cs.giveBack(o, backs[0])\n"}},
		both, "GiveBacksOfOneCall"},
	{"a redelivery ends the delay of a give-back", []edit{{holding, "(!h.handable(head.from) || h.delayed(head.from))",
		"!h.handable(head.from)"}}, "leased", "RedeliveredBeforeDelay"},
	{"what waits for its delay is no lag", []edit{{"broker/membroker/group.go", "behind(m.g.filter())\n		return lag",
		`behind(m.g.filter())
		p := &m.g.cursors[0].leases
		for o := p.floor; o < p.next; o++ {
			if e := p.at(o); !e.done && e.holder == 0 {
				lag.Unsettled--
			}
		}
		return lag`}}, "leased", "LagOfDelayed"},
	{"what waited here when its lease ran out is counted for ever", []edit{{holding,
		"	h.forgetPrefetch()\n	for o := h.w.lo", "	h.spans, h.held, h.heldN = nil, 0, 0\n	for o := h.w.lo"}}, "leased",
		"DownForgetsPrefetch"},
	{"what is out is not extended while its topic is paused", []edit{{holdings, "		os = h.extends(os)\n",
		"		if !hs.pauses.Has(h.cur.log.topic) {\n			os = h.extends(os)\n		}\n"}}, "leased", "PauseKeepsWhatIsOut"},
	{"an outage makes it forget what is finished", []edit{{holding, "			sl.state = expired\n		}\n",
		"			sl.state = expired\n		} else if sl.state == done {\n			sl.state = unseen\n		}\n"}}, "leased", "ForgottenAtDown"},
	{"the time of a message is that of its delivery", []edit{{"broker/membroker/grant.go",
		"		m.Attempt, m.Runs = attempt, runs\n", "		m.Attempt, m.Runs, m.Nanos = attempt, runs, m.Nanos+int64(g.gen)\n"}},
		both, "GiveBack"},
	{"an id is stored where nobody looks for it", []edit{{"broker/membroker/broker.go", "broker.Header{Key: broker.HeaderID,",
		`broker.Header{Key: "Own-Id",`}}, "leased", "PublishWithID"},
	{"the partition of a message is not asked", []edit{{"broker/membroker/broker.go", "p != nil && *p >= 0 &&",
		"p != nil && *p >= 1<<20 &&"}}, "partitioned", "PublishToPartition"},
	{"claims before the other sources are there", []edit{{source, "		if err := s.life.Await(ctx, o); err != nil {\n",
		"		if err := errors.Join(s.try(ctx, s.place.open), s.life.Await(ctx, o)); err != nil {\n"}}, "partitioned",
		"AwaitsOthers"},
	{"publishes outlive their publisher", []edit{{"broker/membroker/publisher.go",
		"	return p.life.Do(ctx, func(ctx context.Context) error {", "	return p.life.Do(ctx, func(context.Context) error {"}},
		both, "PublisherCloseWhileDown"},
	{"commit then end", []edit{{loop, "	ends, next := l.holdings.over(now)\n	for _, e := range ends {\n",
		`	early := make(map[*holding]progress)
	for _, h := range l.holdings.all() {
		l.holdings.mu.Lock()
		if cs := h.claim(); cs.shut && (cs.out == 0 || !now.Before(cs.by)) {
			early[h], h.promised = h.snapshot(), 0
		}
		l.holdings.mu.Unlock()
	}
	for h, p := range early {
		_ = l.link.exchange(func(time.Time) error { return l.place.m.commit(h, h.term, p, h.outs.all(), &l.b.faults) })
	}
	ends, next := l.holdings.over(now)
	for _, e := range ends {
		if p, ok := early[e.h]; ok {
			e.p, e.promised = p, 0
		}
`}}, "partitioned", "SettleRacesEnd"},
	{"budget freed at the end of a claim", []edit{{claims,
		"		cs.orphans[token(o, sl.gen)] = sl.size\n		cs.h.sh.stale.Add(cs.h.log(), o)\n", "		cs.h.sh.gate.Free(1, int64(sl.size))\n"}},
		"partitioned", "BudgetAtEnd"},
	{"redelivery handed out while out", []edit{{window, "return sl.state == unseen || sl.state == back", "return sl.state != done"}},
		both, "RedeliveredWhileOut"},
	{"finished messages known by sequence only", []edit{{loop, "		l.assigned(n) // anew, with nothing remembered\n", `		l.assigned(n)
		if anew := l.holdings.of(n.cur); h != nil && anew != nil {
			l.holdings.mu.Lock()
			anew.w, anew.floor = h.w, h.floor
			l.holdings.mu.Unlock()
		}
`}}, both, "Recreated"},
	{"pause keeps the prefetch", []edit{
		{holdings, "		if hs.pauses.Has(h.cur.log.topic) && !hs.shared.keepsOrder() {", "		if false {"},
		{holdings, "if (hs.stop != nil || hs.pauses.Has(h.cur.log.topic)) &&", "if hs.stop != nil &&"}}, both, "Pause|PauseInOrder"},
	{"delay of a give-back ignored", []edit{{claims, "lb.due = time.Now().Add(b.Delay)", "lb.due = time.Now()"}},
		"leased short_delay", "GiveBackDelay"},
	{"lost settles not reported", []edit{silent, {"broker/kit/tally.go", "	case t.Lost > 0:", "	case t.Lost < 0:"}}, both,
		"CloseGivesBack"},
	{"second settle accepted", []edit{{"broker/kit/tally.go", "	case t.Again > 0:", "	case t.Again < 0:"}}, both, "SettleOnce"},
	{"error together with messages", []edit{{source, "return int(g.sp.n), nil", "return int(g.sp.n), errors.New(\"a mutant's\")"}},
		both, "BudgetMessages"},
	{"stop loses the buffer", []edit{{holdings, "			h.dropPrefetch()\n		}\n		if len(h.backs)", `			for _, sp := range h.spans {
				if hs.shared.leased {
					continue
				}
				h.w.extend(sp.from, sp.from+sp.n)
				for o := sp.from; o < sp.from+sp.n; o++ {
					h.w.at(o).state = done
				}
				h.dirty = true
			}
			h.forgetPrefetch()
		}
		if len(h.backs)`}}, both, "StoppedAndBounced|StopReturns|TrimmedWhileAway"},
	{"gaps not reported", []edit{{holding, "	if g != nil {", "	if g != nil && g.n < 0 {"}}, both, "TrimmedWhileAway"},
	{"give-backs counted as runs", []edit{{claims, "	h := cs.h\n	if h.sh.leased {", "	b.Runs++\n	h := cs.h\n	if h.sh.leased {"}},
		both, "Attempts"},
	{"settled when handed out", []edit{{holdings, "			return grant{sp: sp, gen: gen, cs: h.claim()}, false, nil\n",
		`			for o := sp.from; o < sp.from+sp.n; o++ {
				h.w.at(o).state = done
				h.acks = append(h.acks, o)
			}
			h.advance()
			h.dirtied()
			return grant{sp: sp, gen: gen, cs: h.claim()}, false, nil
`}}, both, "CloseGivesBack"},
	{"leases not extended", []edit{{holdings, "	if !hs.shared.leased {\n		return nil\n", "	if true {\n		return nil\n"}}, "leased",
		"LongHandlers"},
	{"bytes without a bound", []edit{
		{"broker/kit/gate.go", "g.budget.Bytes-g.outBytes-g.heldBytes", "1<<50"},
		{"broker/kit/gate.go", "messages, bytes = g.budget.Messages-g.out, g.budget.Bytes-g.outBytes\n",
			"messages, bytes = g.budget.Messages-g.out, 1<<50\n"}},
		both, "BudgetBytes"},
	{"last commit forgotten at close", []edit{{loop, "if b.send(l.place.m, now); b.err", "if b.err"}}, both, "CloseGivesBack"},
	{"settles not told as operations", []edit{{loop, "	l.link.operated(broker.Settle, sent, refused(bs, err))\n", "	_ = sent\n"}},
		both,
		"OperationsAreTold"},
	{"unknown lag is zero", []edit{{figures, "&figures{lag: broker.UnknownLag()}", "&figures{}"}}, both, "LagWhileDown"},
	{"nothing waits", []edit{{figures, "= max(0, h.cur.log.end-max(h.high, h.cur.log.first))", "= 0"}}, "partitioned", "LagWaiting"},
	{"nothing is said of a Close that told nobody", []edit{{loop,
		"			return fmt.Errorf(\"membroker: closing: %w (last try: %w)\", l.abortErr, err)\n", "			return nil\n"}}, both, "CloseUnsaid"},
	{"an old lag is zero", []edit{{figures, "	defer f.mu.Unlock()\n	return f.lag\n", `	defer f.mu.Unlock()
	if at := f.lag.At; time.Since(at) > 300*time.Millisecond {
		return broker.Lag{At: at}
	}
	return f.lag
`}}, both, "LagStaysUnknown"},
	{"the floor passes what is out", []edit{{figures, "= c.leases.floor", "= c.leases.next"},
		{figures, "= c.progress().committed", "= c.log.end"}}, both, "Floors"},
	{"a log made anew has the old one's name", []edit{{"broker/membroker/log.go", "l.topic, epoch, l.partition)",
		"l.topic, 0, l.partition)"}},
		both, "FloorsRecreated"},
	{"expired give-back sent", []edit{{holdings, "	if hs.shared.leaseLost {\n", "	if true {\n"}}, "leased",
		"Frozen|UnconfirmedIsTold"},
	{"handed out across claims", []edit{{holding, "	if h.stale.Has(o) {", "	if false {"}}, "partitioned", "OutAcrossClaims"},
	{"an ack waits for the network", []edit{{source, "	return s.holdings.ack(cs, tokens)",
		"	_ = s.link.exchange(func(time.Time) error { return nil })\n	return s.holdings.ack(cs, tokens)"}}, both, "SettlesDoNotWait"},
	{"tokens are read after the call", []edit{{source, "	return s.holdings.ack(cs, tokens)",
		"	time.AfterFunc(time.Microsecond, func() { _ = s.holdings.ack(cs, tokens) })\n	return nil"}}, both, "HandedOutOnce"},
	{"give-backs are read after the call", []edit{{source, "	return s.holdings.nack(cs, backs, s.traits.AtMostOnce)",
		"	time.AfterFunc(time.Microsecond, func() { _ = s.holdings.nack(cs, backs, false) })\n	return nil"}}, both, "GiveBack"},
	{"acks that did not hold not reported", []edit{silent}, both, "UnconfirmedIsTold"},
	{"unsaid at Close and not reported", []edit{silent}, both, "CloseUnsaid"},
	{"reported in advance", []edit{silent, {source, "	return s.traits, nil",
		"	s.events.Say(broker.Event{Kind: broker.Unconfirmed, N: -1, Err: errForeign})\n	return s.traits, nil"}}, both,
		"UnconfirmedIsTold"},
	{"late ack not sent", []edit{{"broker/membroker/holdinglist.go",
		"			h.acks = append(h.acks, o) // of use still: it spares the next holder the work\n", "			_ = o\n"}}, "leased", "LateAck"},
	{"lapsed lease not told", []edit{{"broker/membroker/source.go", "	return cs != nil && s.holdings.lapsedOut(cs, token)\n",
		"	return cs == nil\n"}}, "leased", "Lapsed"},
	{"given back late at Close", []edit{{"broker/membroker/loop.go", "		if l.holdings.silent(time.Now()) > 0 {", "		if false {"}},
		"leased", "CloseGivesBackLate"},
	{"second close does not wait", []edit{{"broker/kit/life.go", "		<-l.done\n		return l.err\n", "		return nil\n"}}, both,
		"CloseWaits"},
	{"order not kept at stop and pause", []edit{{holding, "return sh.ordered && ", "return false && "}}, "leased",
		"StopInOrder|PauseInOrder"},
	{"order not kept across claims", []edit{{holding, "	if !h.sh.ordered {", "	if true {"}}, "partitioned", "OrderAcrossClaims"},
	{"leases of the prefetch not extended", []edit{{holding, "		for o := sp.from; o < sp.from+sp.n; o++ {\n			os = append(os, o)\n",
		"		for o := sp.from; o < sp.from; o++ {\n			os = append(os, o)\n"}},
		"leased", "PrefetchStays"},
	{"leases of unsent settles not extended", []edit{{holding, "	os = append(os, h.acks...)\n	for _, b := range h.backs {",
		"	for _, b := range h.backs[:0] {"}}, "leased", "FailedForLong"},
	{"down without a reason", []edit{{source, "	s.events.Observe(o.Observe)\n", `	s.events.Observe(func(e broker.Event) {
		if e.Kind == broker.Down {
			e.Err = nil
		}
		o.Observe(e)
	})
`}}, both, "DownLater"},
	{"down told each second", []edit{
		{"broker/internal/contact/contact.go", "true, false, at, firstPause", "true, false, at, leastPause"},
		{"broker/internal/contact/contact.go", "now, min(2*c.pause, lastPause)", "now, leastPause"}}, both, "DownAgain"},
	{"down again not told", []edit{{"broker/internal/contact/contact.go", "	if !c.down || c.told {",
		"	if !c.down || c.told || c.since.Before(c.last.Add(leastPause)) {"}}, both, "DownAgain"},
	{"smaller budget not used", []edit{{holdings, "	hs.shared.gate.SetBudget(b)\n",
		"	if b.Messages >= hs.shared.gate.Budget().Messages {\n		hs.shared.gate.SetBudget(b)\n	}\n"}}, both, "SetBudget"},
	{"lag of the wrong group", []edit{{figures, "	f.set(lag, lags)\n", "	lag.Group = !lag.Group\n	f.set(lag, lags)\n"}}, both,
		"LagOfTwo"},
	{"receive goes on after a kill", []edit{{holdings, "if hs.stop == nil || cause == errKilled {",
		"if hs.stop == nil && cause != errKilled {"}}, both, "Killed"},
	{"commit then end at close", []edit{{loop, "	over, bs := l.holdings.close()\n",
		"	l.send()\n	over, bs := l.holdings.close()\n	bs = nil\n"}}, both, "SettleRacesClose"},
	{"bytes used up to the last one", []edit{{"broker/kit/gate.go", "		g.starved = true\n",
		"		g.starved = messages <= 0 || bytes < 0\n"}}, both, "BytesUsedUp"},
	{"late settles free no budget", []edit{
		{claims, "	h.sh.gate.Free(1, int64(sl.size))\n	return how, o\n",
			"	if how == settledNow {\n		h.sh.gate.Free(1, int64(sl.size))\n	}\n	return how, o\n"},
		{claims, "	sh.gate.Free(1, int64(size))\n", "	_ = size\n"}}, both, "LateSettlesFree"},
	{"handed out beside Assigned", []edit{{loop, "		l.events.Tell()\n		l.holdings.admit(cs)\n",
		"		l.holdings.admit(cs)\n		l.events.Tell()\n"}}, both, "AssignedComesFirst"},
	{"settles of another source", []edit{{source, "var errForeign = fmt.Errorf(\"membroker: settling: %w\", broker.ErrForeign)",
		"var errForeign error"}}, both, "ForeignClaim"},
	{"given back and gone in silence", []edit{{holding, "				missing++\n", "				if sl.state == unseen {\n					missing++\n				}\n"}},
		"partitioned", "TrimmedAndGivenBack"},
	{"gap from nowhere", []edit{{holding, "From: g.from, N: g.n", "N: g.n"}}, both, "TrimmedWhileAway"},
	{"a commit refused by a bounce not sent again", []edit{{holdings, "	h.term = n.term\n	h.dirtied()\n", "	h.term = n.term\n"}},
		"partitioned", "BouncedUnderCommit"},
	{"prefetch handed out after its lease", []edit{
		{holdings, "hs.lapsed = time.Since(hs.contact) >= hs.leaseFor; hs.lapsed", "hs.lapsed = false; hs.lapsed"},
		{holding, "func (h *holding) expire() {\n	h.forgetPrefetch()\n", "func (h *holding) expire() {\n"}}, "leased",
		"PrefetchAfterLease"},
	{"prefetch beyond the budget", []edit{{"broker/kit/gate.go",
		"g.budget.Messages-g.out-g.heldN, g.budget.Bytes-g.outBytes-g.heldBytes", "1<<30, 1<<50"}}, "leased", "PrefetchBounded"},
	{"settled goes before lost", []edit{{"broker/kit/tally.go", "	switch {\n	case t.Lost > 0:",
		"	switch {\n	case t.Again > 0:\n		return broker.ErrSettled\n	case t.Lost > 0:"}},
		"leased", "LostBeforeSettled"}, // where a claim has ended, membroker counts nothing as settled before
	{"give-backs sent from the last one on", []edit{{holding, "		b.acks, b.backs = h.acks, h.backs\n		h.acks, h.backs = nil, nil\n",
		`		b.acks, h.acks = h.acks, nil
		if n := len(h.backs); n > 0 {
			if b.backs, h.backs = h.backs[n-1:], h.backs[:n-1]; n > 1 {
				h.dirtied()
			}
		}
`}}, "leased", "GiveBackInOrder"},
	{"few finished messages remembered", []edit{{"broker/membroker/config.go", "	remembered = 8192", "	remembered = 8000"}},
		"leased", "ForgottenMany"},
	{"end then fence", []edit{
		{holdings, "		over = append(over, h.fenceAll()...)\n		bs", "		over = append(over, h.claims...)\n		bs"},
		{loop, "	for _, cs := range over {\n		cs.end(l.events, errSourceClosed)\n	}\n", `	for _, cs := range over {
		cs.end(l.events, errSourceClosed)
		time.Sleep(time.Millisecond)
		l.holdings.mu.Lock()
		cs.fence()
		l.holdings.mu.Unlock()
	}
`}}, both, "FencedBeforeEnd"},
	{"a budget of nothing waits", []edit{{"broker/kit/life.go", "	if o.Budget.Messages <= 0 || o.Budget.Bytes <= 0 {",
		"	if false {"}}, both, "BadOptions"},
	{"a refused configuration is tried again", []edit{{source, "		return ask()\n	}, isRefusal)",
		"		return ask()\n	}, func(error) bool { return false })"}},
		both, "Misconfigured"},
	{"a second Open that does not say what it is", []edit{{"broker/kit/life.go", "return l.inOpen(broker.ErrOpened)",
		"return l.inOpen(errors.New(\"not now\"))"}}, both, "OpenTwice"},
	{"a Receive that fails ends the claims", []edit{{source, "		s.holdings.fail(err)\n",
		"		s.holdings.fail(err)\n		go s.Close(context.Background())\n"}},
		both, "ReceiveFails"},
	{"outputs stored again after a lost answer", []edit{{outputs, "e.list[min(int64(len(e.list)), max(0, c.emits.stored-e.first)):]",
		"e.list"}}, "atomic", "OutputsOfCutFromBroker"},
	{"outputs of a commit that is fenced", []edit{{flush, "	if c.owner != m || c.term",
		"	_ = m.emit(c, h, outs, f)\n	if c.owner != m || c.term"}}, "atomic", "OutputsOfLost|OutputsOfFrozen|OutputsStorm"},
	{"a snapshot without its outputs", []edit{{holding, "h.snapshot(), h.outs.all()", "h.snapshot(), emitted{}"}}, "atomic",
		"OutputsOnce|OutputsOfKilled"},
	{"the last commit without its outputs", []edit{{claims, "h.takeOuts(), h.promised", "emitted{}, h.promised"}}, "atomic",
		"OutputsAtEnd"},
	{"outputs before those acked earlier", []edit{{outputs, "append(x.list, os...)", "append(os[:len(os):len(os)], x.list...)"}},
		"atomic", "OutputsInOrder"},
	{"outputs of a commit that failed dropped", []edit{{holdings, "		b.h.dirtiedFor(retryEvery)\n",
		"		b.h.dirtiedFor(retryEvery)\n		b.h.takeOuts()\n"}}, "atomic", "OutputsInOrder|OutputsOfCutToBroker"},
	{"half of an emission", []edit{{outputs, "cs.h.outs.add(e.Outs)", "cs.h.outs.add(e.Outs[:min(1, len(e.Outs))])"}}, "atomic",
		"OutputsOnce|OutputsTogether"},
	{"a pause that Open forgets", []edit{{holdings, "	hs.shared.gate.SetBudget(o.Budget)\n	hs.shared.ordered",
		"	hs.pauses = kit.Pauses{}\n	hs.shared.gate.SetBudget(o.Budget)\n	hs.shared.ordered"}}, both, "PausedBeforeOpen"},
	{"a hold that another one does not shorten", []edit{{holdings, "	h.heldUntil = until\n", `	if until.After(h.heldUntil) {
		h.heldUntil = until
	}
`}}, both, "Hold"},
	{"outputs outside of the budget", []edit{{outputs, "			hs.shared.gate.Hold(0, cs.h.outs.add(e.Outs))\n",
		"			cs.h.outs.add(e.Outs)\n"}}, "atomic", "OutputsInBudget"},
	{"outputs that are stored count in the budget", []edit{{holdings, "			hs.shared.gate.Hold(0, -bytes)\n", "			_ = bytes\n"}},
		"atomic", "OutputsInBudget"},
	{"outputs too large accepted", []edit{{outputs, "	return s.b.fits(o)\n", "	return nil\n"}}, "atomic", "OutputsRefused"},
	{"a revoked claim ends with its time", []edit{{holdings, "if cs.out > 0 && now.Before(cs.by) {", "if now.Before(cs.by) {"}},
		"partitioned", "Revoked"},
	{"what was delivered often is dropped", []edit{{"broker/membroker/lease.go",
		"		case cfg.MaxDeliveries > 0 && int(e.deliveries) >= cfg.MaxDeliveries:\n", "		case e.deliveries >= 20:\n"}}, "leased",
		"GivenBackOften"},
	{"an outage undoes what was paused", []edit{{holdings, "	hs.shared.leaseLost, hs.contact = false, at\n",
		"	if at.Sub(hs.contact) > hs.leaseFor/2 {\n		hs.pauses.Resume()\n	}\n" +
			"	hs.shared.leaseLost, hs.contact = false, at\n"}}, "partitioned",
		"DownKeepsSettings"},
	{"a claim begins after Stop", []edit{{holdings, "	if hs.stop != nil {\n		return nil\n	}\n	return h.begin", "	return h.begin"}},
		"partitioned", "StoppedAndBounced"},
}

// TestMutantsOfSuite proves that the conformance suite sees each of these mistakes, and by which case. Each is a build of its
// own, so it runs where real brokers are demanded, too (CI), or in full.
func TestMutantsOfSuite(t *testing.T) {
	if !inFull() && os.Getenv("LONGSHORE_REAL") == "" {
		t.Skip("in short: LONGSHORE_REAL=1 or make chaos runs it")
	}
	t.Parallel()
	for _, m := range suiteMutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			var out string
			for range 3 { // what some do wrong depends on who runs first
				if out = m.run(t); m.seen(out) {
					return
				}
			}
			t.Errorf("%s does not see it on each of %s:\n%s", m.by, m.on, out)
		})
	}
}

// seen says whether each variant failed by a case.
func (m *suiteMutant) seen(out string) bool {
	for _, variant := range strings.Fields(m.on) {
		if !strings.Contains(out, "--- FAIL: TestConformance/"+variant+"/") {
			return false
		}
	}
	return true
}

func (m *suiteMutant) run(t *testing.T) string {
	t.Helper()
	run := fmt.Sprintf("-run=TestConformance/^(%s)$/^(%s)$", strings.ReplaceAll(m.on, " ", "|"), m.by)
	cmd := exec.Command("go", "test", "-count=1", "-timeout=1m", "-vet=off", "-ldflags=-w -s",
		"-overlay="+overlay(t, m.edits, otherTests(t)...), run, "./broker/membroker")
	cmd.Dir = ".."
	out, _ := cmd.CombinedOutput() // what failed stands in it
	return string(out)
}

// otherTests are the tests of package membroker that the conformance suite does not need. They, and the engine that they use, are
// a third of what a build costs.
func otherTests(t *testing.T) (files []string) {
	t.Helper()
	all, err := filepath.Glob("../broker/membroker/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if name := filepath.Base(file); name != "conformance_test.go" && name != "main_test.go" {
			files = append(files, file)
		}
	}
	return files
}

// overlay writes the changed files, and what tells the build to take them in the place of the others, and to leave some out.
func overlay(t *testing.T, edits []edit, leftOut ...string) (path string) {
	t.Helper()
	dir, changed, replace := t.TempDir(), map[string]string{}, map[string]string{}
	for _, file := range leftOut {
		abs, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		replace[abs] = ""
	}
	for _, e := range edits {
		abs, err := filepath.Abs(filepath.Join("..", e.file))
		if err != nil {
			t.Fatal(err)
		}
		if changed[abs] == "" {
			changed[abs] = read(t, abs)
		}
		changed[abs] = strings.Replace(changed[abs], e.old, e.new, 1)
	}
	for abs, text := range changed {
		replace[abs] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		write(t, replace[abs], text)
	}
	of, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "overlay.json")
	write(t, path, string(of))
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestMutantsApplyToSuite: each edit still has its place in the source.
func TestMutantsApplyToSuite(t *testing.T) {
	for _, m := range suiteMutants {
		for _, e := range m.edits {
			if n := strings.Count(read(t, filepath.Join("..", e.file)), e.old); n != 1 {
				t.Errorf("mutant %q: its place is %d times in %s, want once:\n%s", m.name, n, e.file, e.old)
			}
		}
	}
}
