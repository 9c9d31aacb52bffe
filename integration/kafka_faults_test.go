//go:build unix

package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// churnOfMembers has one member that stays and one that comes and goes, so that partitions move all the time.
func churnOfMembers(t *testing.T, k kind) string {
	f := k.newField(t, k.start(t))
	f.calm(t)
	f.config.Busy = 5 * time.Millisecond
	f.config.Heartbeat = 50 * time.Millisecond // a cooperative move takes two rebalances, and the guest stays for 300 ms
	f.startConsumers(t, 1)
	f.load = f.startLoad(t, killRate, 0)
	f.consumers[0].says(t, "handled", 1)
	f.config.Churn = 300 * time.Millisecond
	guest := f.comesAndGoes(t, lengths(10*time.Second, time.Minute))
	// A busy machine may need longer than a stay to move a partition: then another guest stays twice as long.
	for !guest.churned() && f.config.Churn < 5*time.Second {
		guest.terminate(t)
		f.config.Churn *= 2
		guest = f.comesAndGoes(t, 10*f.config.Churn)
	}
	f.consumers = append(f.consumers, guest)
	moves := len(f.consumers[0].claims()) + len(guest.claims())
	a := f.finish(t)
	stays := guest.out.count("left")
	if !guest.churned() {
		t.Errorf("the guest came %d times and got %d partitions: no churn", stays, guest.out.count("assigned"))
	}
	if limit := a.Acked / 200; a.Duplicates > limit {
		t.Errorf("%d of %d handled twice, more than 0.5 %%", a.Duplicates, a.Acked)
	}
	return fmt.Sprintf("%d stays of %v with %d partitions, %d came or went in all; %v", stays, f.config.Churn,
		guest.out.count("assigned"), moves, a)
}

// comesAndGoes starts a member that joins and leaves, and lets it do so for a time.
func (f *field) comesAndGoes(t *testing.T, long time.Duration) *process {
	guest := f.start(t)
	for began := time.Now(); time.Since(began) < long; time.Sleep(100 * time.Millisecond) {
		if guest.ended() {
			t.Fatalf("the member that comes and goes ended: %s", guest.err.tail())
		}
	}
	return guest
}

// churned says whether a member that comes and goes did so, and was given a partition.
func (p *process) churned() bool { return p.out.count("left") >= 3 && p.out.count("assigned") > 0 }

// longHandlers run three times as long as the session: heartbeats do not wait for them, so no partition moves.
func longHandlers(t *testing.T, k kind) string {
	f := newField(t, k.start(t), longshoreConsumer)
	f.setLease(t, 2*time.Second)
	f.config.Busy, f.config.SlowOneIn = 3*f.config.Lease, 0
	f.startConsumers(t, 2)
	f.balanced(t)
	before := len(f.consumers[0].claims()) + len(f.consumers[1].claims())
	const messages = 4 * killWorkers
	f.load = f.startLoad(t, killRate, messages)
	f.load.finish()
	eventually(t, "all are handled", func() bool { return len(f.entries(t)) >= messages })
	moves := len(f.consumers[0].claims()) + len(f.consumers[1].claims()) - before
	if moves != 0 {
		t.Errorf("partitions came or went %d times under long handlers: %v, %v", moves, f.consumers[0].claims(),
			f.consumers[1].claims())
	}
	a := f.finish(t)
	a.noDuplicates(t)
	return fmt.Sprintf("%d messages of %v each, %d partitions moved; %v", messages, f.config.Busy, moves, a)
}

// lostPartitions takes a member out of its group while it works on all of its partitions, as an administrator can. Its handlers
// are told, what they did not finish goes to the other member, and nothing that it says of them counts.
func lostPartitions(t *testing.T, k kind) string {
	f := k.newField(t, k.start(t))
	s := f.onKafka()
	f.calm(t)
	f.config.Busy, f.config.SlowOneIn, f.config.Loud = 6*time.Second, 0, true
	f.startConsumers(t, 2)
	f.balanced(t)
	f.load = f.startLoad(t, killRate, 4*killWorkers)
	f.load.finish()
	p := f.consumers[0]
	p.says(t, "begun", killWorkers)
	if err := s.cluster.RemoveMember(t.Context(), s.group, clientID(p.cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	p.says(t, "cancelled", killWorkers)
	for _, line := range p.out.all() {
		if strings.HasPrefix(line, "cancelled") && !strings.Contains(line, broker.ErrLost.Error()) {
			t.Errorf("a handler's context ended for another reason: %q", line)
		}
	}
	if n := len(f.entries(t)); n != 0 {
		t.Logf("%d were handled before the member was taken out", n)
	}
	a := f.finish(t)
	a.noDuplicates(t)
	return fmt.Sprintf("%d handlers were told; %v", p.out.count("cancelled"), a)
}

// A claimSaid is a line of a consumer: a partition came or went.
type claimSaid struct {
	came      bool
	partition int32
	at        int64 // in Unix milliseconds
}

// claims is what a consumer said of its partitions, in order.
func (p *process) claims() (all []claimSaid) {
	for _, line := range p.out.all() {
		words := strings.Fields(line)
		if len(words) != 3 || words[0] != "assigned" && words[0] != "ended" {
			continue
		}
		partition, _ := strconv.ParseInt(words[1], 10, 32) // it is ours, and a number
		at, _ := strconv.ParseInt(words[2], 10, 64)
		all = append(all, claimSaid{words[0] == "assigned", int32(partition), at})
	}
	return all
}

// held is the partitions that a consumer has, sorted.
func (p *process) held() (partitions []int32) {
	has := map[int32]bool{}
	for _, c := range p.claims() {
		has[c.partition] = c.came
	}
	for partition, yes := range has {
		if yes {
			partitions = append(partitions, partition)
		}
	}
	slices.Sort(partitions)
	return partitions
}

// balanced waits until the consumers have all partitions, and none two more than another.
func (f *field) balanced(t *testing.T) {
	t.Helper()
	eventually(t, "the partitions are shared out evenly", func() bool {
		var counts []int
		sum := 0
		for _, p := range f.consumers {
			n := len(p.held())
			counts, sum = append(counts, n), sum+n
		}
		return sum == loadPartitions && slices.Max(counts)-slices.Min(counts) <= 1
	})
}
