package kafkabroker

import (
	"context"
	"time"
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
}

// run ends when no claim is left and all is committed, or life has ended.
func (x *committer) run(life context.Context) {
	defer close(x.done)
	timer := time.NewTimer(x.cfg.CommitInterval)
	defer timer.Stop()
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
		if wait := time.Until(last.Add(x.cfg.commitWait(x.h.due(), size))); wait > 0 {
			timer.Reset(wait)
			continue
		}
		again := true
		for again && life.Err() == nil {
			if size, again = x.commit(life, all); again {
				pause(life, retryWait)
			}
			all = false
		}
		if x.h.due().over {
			return
		}
		last = time.Now()
		timer.Reset(x.cfg.CommitInterval)
	}
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

// commit sends what is new, or all, with so many bytes of metadata. again: something of it should be tried again soon.
func (x *committer) commit(life context.Context, all bool) (size int, again bool) {
	me := x.m.id(partitionID{}) // before the snapshots: what is lost after this cannot be committed under a later name
	ds := x.h.collect(all)
	if len(ds) == 0 {
		return 0, false
	}
	cs := make([]*commitment, len(ds))
	for i, d := range ds {
		cs[i] = d.c
		size += len(d.c.metadata)
	}
	ctx, cancel := context.WithTimeout(life, x.timeout)
	defer cancel()
	if err := x.k.commit(ctx, me, cs); err != nil {
		x.note.failed(err)
		return size, true
	}
	a := x.h.answered(ds, x.atlas.isGone)
	for _, err := range a.troubles {
		x.note.failed(err)
	}
	if len(a.released) > 0 {
		x.m.release(a.released)
	}
	signal(x.bells.kick)
	return size, a.again
}
