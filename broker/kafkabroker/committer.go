package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// A committer sends commits, one request at a time: only one that got no answer can arrive behind a newer, see doubt.
type committer struct {
	cfg     *Config
	h       *holdings
	k       *coordinator
	m       membership
	timeout time.Duration // of an exchange
	atlas   *atlas
	note    contact
	bells   *bells
	done    chan struct{} // it has ended

	txn     *transactor // nil: commits are no transactions
	unclear []due       // of a transaction whose end got no answer
	told    time.Time   // the end of a wait for a quota that was warned of
}

// run ends when no claim is left and all is committed, or life has ended.
func (x *committer) run(life context.Context) {
	defer close(x.done)
	timer := time.NewTimer(x.cfg.CommitInterval)
	defer timer.Stop()
	defer x.abandon()
	last, size, all := time.Now(), 0, false
	for {
		select {
		case <-life.Done():
			return
		case <-x.bells.flush:
		case <-timer.C:
		}
		if x.k.doubtOver(time.Now()) {
			all = true
		}
		due := x.h.due()
		if wait := max(time.Until(last.Add(x.cfg.commitWait(due, size))), x.quotaWait(due)); wait > 0 {
			timer.Reset(due.within(wait))
			continue
		}
		again := true
		for again && life.Err() == nil {
			if size, again = x.commit(life, all); again {
				pause(life, retryWait)
			}
			all = false
		}
		if due = x.h.due(); due.over {
			return
		}
		last = time.Now()
		timer.Reset(due.within(x.cfg.CommitInterval))
	}
}

// within is how much of a wait there is before something that was refused is tried again.
func (b *backlog) within(wait time.Duration) time.Duration {
	if b.again.IsZero() {
		return wait
	}
	return max(0, min(wait, time.Until(b.again)))
}

const (
	// commitGap is the least time between two commits, but for those that somebody waits for.
	commitGap = 20 * time.Millisecond
	// commitBytes a second is how much metadata is written for a long time. The broker keeps each commit until its log is compacted.
	commitBytes = 256 << 10
)

// commitWait is how long to wait after the last commit, which had so many bytes of metadata. A few finished messages wait for
// CommitInterval; from CommitMessages on they go out at once: what a crash does again is bounded by their number where there are
// many, and by time where there are few.
func (c *Config) commitWait(b backlog, size int) time.Duration {
	switch {
	case b.waited:
		return 0
	case b.finished >= int64(c.CommitMessages):
		return min(c.CommitInterval, max(commitGap, time.Duration(size)*time.Second/commitBytes))
	}
	return c.CommitInterval
}

// quotaWait is how long outputs wait for a quota of a broker before their transaction begins. One that has begun waits for
// nothing: it would be aborted for being late, and all of it sent again, against the same quota. What somebody waits for is sent
// at once: after a stop it could only be done again.
func (x *committer) quotaWait(b backlog) time.Duration {
	if x.txn == nil || b.waited {
		return 0
	}
	node, until := x.txn.c.throttles.longest()
	wait := time.Until(until)
	if wait > x.cfg.TransactionTimeout && until != x.told {
		x.told = until
		err := fmt.Errorf("outputs wait for %v: broker %d holds us to a quota (producer_byte_rate)", wait.Round(time.Second), node)
		x.note.events.Say(broker.Event{Kind: broker.Warning, Err: err})
	}
	return wait
}

// commit sends what is new, or all, with so many bytes of metadata. again: something of it should be tried again soon.
func (x *committer) commit(life context.Context, all bool) (size int, again bool) {
	began := time.Now()
	if again := x.resolve(life); again {
		return 0, true
	}
	who := x.m.committers() // before the snapshots: what is lost after this cannot be committed under a later name
	ds := x.h.collect(all, x.blocked(life))
	if len(ds) == 0 {
		if !x.h.due().refused {
			x.note.rests(toCommit)
		}
		return 0, false
	}
	for _, d := range ds {
		size += len(d.c.metadata)
	}
	if !x.send(life, ds, byCommitter(ds, who)) {
		return size, true
	}
	return size, x.answered(began, ds)
}

// send sends it, and says whether it was answered.
func (x *committer) send(life context.Context, ds []due, by map[memberID][]*commitment) bool {
	if x.txn != nil {
		return x.transact(life, ds, by)
	}
	ctx, cancel := context.WithTimeout(life, x.timeout)
	defer cancel()
	for me, cs := range by {
		began := time.Now()
		err := x.k.commit(ctx, me, cs)
		x.note.operated(broker.Settle, began, refusedCommit(cs, err))
		if err != nil {
			x.failed(err)
			return false
		}
	}
	return true
}

// failed takes note of a commit that did not work.
func (x *committer) failed(err error) { x.note.on(toCommit, time.Time{}, err) }

// refusedCommit is why a commit failed, or the first partition in it.
func refusedCommit(cs []*commitment, err error) error {
	for i := 0; i < len(cs) && err == nil; i++ {
		err = cs[i].err
	}
	return err
}

// answered takes note of the answers to what began at a time, and says whether something should be tried again soon.
func (x *committer) answered(began time.Time, ds []due) (again bool) {
	a := x.h.answered(ds, x.atlas.lacks)
	for _, err := range a.troubles {
		x.failed(err)
	}
	if len(a.troubles) == 0 && !x.h.due().refused && slices.ContainsFunc(ds, func(d due) bool { return d.c.err == nil }) {
		x.note.on(toCommit, began, nil)
	}
	if len(a.released) > 0 {
		x.m.release(a.released)
	}
	if a.changed {
		signal(x.bells.kick)
	}
	return a.again
}

// blocked says of topics whether outputs to them have to wait; nil: none.
func (x *committer) blocked(life context.Context) func(topic string) bool {
	if x.txn == nil {
		return nil
	}
	x.txn.release(life)
	return x.txn.dest.blocked()
}

// transact sends it in a transaction, with what was made of the messages, and says whether it was answered. What is of a log
// that is gone is left out, for the group would take none of the transaction with it.
func (x *committer) transact(life context.Context, ds []due, by map[memberID][]*commitment) bool {
	x.leaveOut(ds, by)
	ours, others := splitDues(ds, func(d due) bool { return d.c.err == nil })
	x.h.unsent(others)
	if len(ours) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(life, x.cfg.TransactionTimeout)
	defer cancel()
	began := time.Now()
	keeps := func() bool { return x.h.keeps(ours) }
	err := x.txn.commit(ctx, keeps, by, outputsOf(ours))
	x.note.operated(broker.Settle, began, err)
	switch {
	case err == nil:
		x.h.inTime(time.Since(began))
		return true
	case errors.Is(ctx.Err(), context.DeadlineExceeded), isLate(err): // of one of its requests, or of all
		x.h.late(ours)
	}
	if errors.Is(err, errUnclear) {
		x.unclear = ours
		x.failed(err)
		return false
	}
	x.h.unsent(ours)
	var topic *outputError
	switch {
	case errors.Is(err, errNotOurs): // what is still ours is collected again
	case errors.As(err, &topic):
		if topic.large || topic.keyless && x.txn.dest.learnKeyed(life, topic.topic) {
			x.h.takeBack(&x.txn.dest.demands)
		}
		if topic.first {
			x.note.events.Say(broker.Event{Kind: broker.Warning, Err: err})
		}
	case x.txn.refused(err):
		x.h.end(fmt.Errorf("transactional id %s, transactions of up to %v: %w", x.txn.to.id, x.txn.timeout, err))
	case !slices.ContainsFunc(ours, func(d due) bool { return !errors.Is(d.c.err, errAborted) }): // else the answers say it
		x.failed(err)
	}
	return true
}

// leaveOut refuses commitments of logs that are gone, whoever has their partitions.
func (x *committer) leaveOut(ds []due, by map[memberID][]*commitment) {
	for _, d := range ds {
		if x.atlas.lacks(d.p.partitionID, d.p.id) {
			d.c.err = kafka.UnknownTopicOrPartition
		}
	}
	for me, cs := range by {
		by[me] = slices.DeleteFunc(cs, func(c *commitment) bool { return c.err != nil })
		if len(by[me]) == 0 {
			delete(by, me)
		}
	}
}

func splitDues(ds []due, is func(due) bool) (yes, no []due) {
	for _, d := range ds {
		if is(d) {
			yes = append(yes, d)
		} else {
			no = append(no, d)
		}
	}
	return yes, no
}

// outputsOf are all outputs, in the order of their acks.
func outputsOf(ds []due) (outs []*broker.Outgoing) {
	lists, n := make([][]*emission, 0, len(ds)), 0
	for _, d := range ds {
		for _, e := range d.es {
			n += len(e.outs)
		}
		if len(d.es) > 0 {
			lists = append(lists, d.es)
		}
	}
	outs = make([]*broker.Outgoing, 0, n)
	for _, e := range merge(lists) {
		for i := range e.outs {
			outs = append(outs, &e.outs[i])
		}
	}
	return outs
}

// merge makes one list of several, each of which is in the order of acks, two by two.
func merge(lists [][]*emission) []*emission {
	switch len(lists) {
	case 0:
		return nil
	case 1:
		return lists[0]
	}
	a, b := merge(lists[:len(lists)/2]), merge(lists[len(lists)/2:])
	both := make([]*emission, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].number < b[0].number {
			both, a = append(both, a[0]), a[1:]
		} else {
			both, b = append(both, b[0]), b[1:]
		}
	}
	return append(append(both, a...), b...)
}

// resolve finds out what became of a transaction whose end got no answer, and says whether to try that again.
func (x *committer) resolve(life context.Context) (again bool) {
	if x.unclear == nil {
		return false
	}
	var witnesses []*commitment
	for _, d := range x.unclear {
		if len(d.es) > 0 {
			witnesses = append(witnesses, d.c)
		}
	}
	ctx, cancel := context.WithTimeout(life, x.cfg.TransactionTimeout)
	defer cancel()
	began := time.Now()
	f, err := x.txn.resolve(ctx, witnesses, x.atlas.lacks)
	switch {
	case hasEvaded(err):
		x.note.events.Say(broker.Event{Kind: broker.Warning, Err: err})
	case err != nil:
		if errors.Is(err, errTopicUnsure) {
			signal(x.bells.find)
		}
		x.failed(err)
		return true
	}
	ds := x.unclear
	x.unclear = nil
	switch f {
	case fateCommitted:
		for _, d := range ds {
			d.c.err = nil
		}
		return x.answered(began, ds)
	case fateUntold:
		x.h.untold(ds)
	case fateAborted:
		x.h.unsent(ds)
	}
	return false
}

// abandonWait is how long the end of a source waits for the abort of what it has left open.
const abandonWait = time.Second

// abandon aborts what was left open, so that nobody has to wait for its timeout.
func (x *committer) abandon() {
	if x.txn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), abandonWait)
		defer cancel()
		x.txn.abandon(ctx)
	}
}

// byCommitter sorts commits by whom they are made. What is not ours by now is made again, if it is then.
func byCommitter(ds []due, who func(partitionID) (memberID, bool)) map[memberID][]*commitment {
	by := make(map[memberID][]*commitment, 1)
	for _, d := range ds {
		me, ours := who(d.p.partitionID)
		if !ours {
			d.c.err = kafka.RebalanceInProgress
			continue
		}
		by[me] = append(by[me], d.c)
	}
	return by
}
