package brokertest

import (
	"context"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// A Harness is what an adapter's author gives the suite. See the package comment.
type Harness struct {
	// New makes a fresh broker for one case, or fresh topics and a fresh group on one that runs. What it starts ends by t.Cleanup.
	// Cleanups, those of Join too, run when every source of the case was closed, however the case ended.
	New func(t testing.TB, s Setup) *System
	// Traits that Open has to return.
	Traits broker.Traits
	// Lease is after how long a silence the broker takes messages, or partitions, from a process: AckWait, session timeout. Cases
	// wait for multiples of it, so take it short: 300-800 ms on real time.
	Lease time.Duration
	// RevokeWait is how long the adapter lets running handlers go on when a claim is revoked. Defaults to 2 × Lease.
	RevokeWait time.Duration
	// Patience is how long a case waits for what has to happen, in the case's time: a bubble's clock stands still while a goroutine
	// in it runs or waits for a mutex (see Bubble). It is never waited for in a passing run. Defaults to 20 s.
	Patience time.Duration
	// Seed of the case that does things at random (Storm). Defaults to 1.
	Seed uint64
	// Bubble runs each case inside testing/synctest: for adapters without I/O. An adapter that spins, or waits for a mutex for good,
	// stops the bubble's clock, and with it all that waits, Patience too: the case then hangs until go test's own -timeout. After 20
	// s of real time the suite says so on the standard error, with the case's name; set Bubble to false to see what the case says.
	Bubble bool
	// SideBySide lets cases run beside each other (testing.T.Parallel), for most of them only wait. Set it where what a case does to
	// its System, and counts there, is no other one's: a Down, a Trim, Pulls. So many run at once as go test -parallel allows, which
	// is few by default; TestMain may allow more, before m.Run: flag.Set("test.parallel", "8"). What fails while the process was
	// starved is run again alone.
	SideBySide bool
	// Probe asks the broker, as another program would and by a way that no case cuts, for something that it has to write down.
	// Set it where the broker is a process of its own: that can be starved as this one can, or its disk stand still, and sessions
	// run out meanwhile. It is called again and again while a case runs, and what fails when an answer took a quarter of a lease
	// is run again. It has to return when ctx ends.
	Probe func(ctx context.Context) error
	// Cannot says for each function of System and Process that is nil why it is: by field name. One that is nil without a reason
	// fails, and so does a name that is none of theirs. Up, Thaw and Heal need none of their own.
	Cannot map[string]string

	// Unordered: the broker keeps no order, so the case Order does not apply. Not set, messages of a partition that nobody gives
	// back have to come in the order in which they were produced, whatever Traits.Ordered says, which is about keys over all
	// replicas.
	Unordered bool
	// OrdersOnDemand: Traits.Ordered is set where Options.Ordered is, though Harness.Traits says otherwise: one process at a time
	// gets messages then (JetStream). All processes of a group have to be opened with the same.
	OrdersOnDemand bool
	// Ordered: every process is opened with Options.Ordered, in each case.
	Ordered bool
	// Only names the cases to run. Empty: all.
	Only []string
	// NoPartitions: the broker has none, so Message.Partition has to be -1. Cases about a partition that goes to another process are
	// skipped.
	NoPartitions bool
	// LateAcks: the broker takes an ack by whom has lost the message to another (JetStream), so that the adapter has to send it.
	LateAcks bool
	// BoundToConnection: a message is settled on the connection that it came by, and on no other (NSQ, AMQP). Where that one breaks,
	// what is out comes again, and its settle says ErrLost, or is told as Unconfirmed. Cases of settles that outlive a connection
	// are skipped.
	BoundToConnection bool
	// DropsSettled: the broker lets go of a message's bytes when it is settled, or is in another process, so that Trim is not needed
	// to see whether the adapter does.
	DropsSettled bool
	// DropsInSilence: the broker drops a message that waits for its redelivery without a word (JetStream), so that the adapter
	// cannot tell a Gap.
	DropsInSilence bool
	// NoKeys: messages have no keys at all. NilKeyIsEmpty, NilValueIsEmpty: the broker cannot tell nil from empty; either may
	// arrive.
	NoKeys, NilKeyIsEmpty, NilValueIsEmpty bool
	// HeadersByKey: the broker keeps the order of headers with the same key only.
	HeadersByKey bool
	// KeepsRuns: the adapter remembers Back.Runs as long as its process lives, and reports it as Message.Runs.
	KeepsRuns bool
	// StopHandsOver: after Stop another process can have what Receive has not returned. False: only after Close (Kafka's
	// partitions).
	StopHandsOver bool
	// Operations: the adapter tells Options.Operated. Not set, it may tell nothing.
	Operations bool
	// DropsRepeatedIDs: the broker stores a message with an Outgoing.ID that it has seen only once.
	DropsRepeatedIDs bool
	// Goroutines are parts of function names by which the adapter's goroutines are known in a stack dump, as "broker/natsbroker.".
	// They have to match something while a source is open.
	Goroutines []string

	skipped func(reason string)
	starved func() bool // the process waited for a processor, beside other cases; nil: never
}

// Setup is what a case wants of New.
type Setup struct {
	// Topics wanted, at least 1, and Partitions of each, where the broker has partitions.
	Topics, Partitions int
	// Lease to use instead of Harness.Lease when it is not 0: some cases take a long one, to tell "given back" from "ran out", or
	// since none has to run out in them: then it does not either where the machine stands still. The case LeaseIsHeeded checks it,
	// where there is Kill.
	Lease time.Duration
	// Shares has processes tell their share of the work (broker.Sharer), where they do so only when they are told.
	Shares bool
}

// A System is a broker for one case, and what the suite can do to it and see of it from outside. Its functions fail t when they
// cannot do what they should. They return when the thing is done, unless said otherwise. Produce, Unsettled and what else asks
// the broker or changes it are called only while it is up.
type System struct {
	// Topics are the names of what New made.
	Topics []string

	// Join makes another process of the one group, which reads all Topics. Its source is not opened yet. It is called while the
	// broker is down, too.
	Join func(t testing.TB) *Process
	// Produce stores messages as another program would, in this order, in the topic's partition (modulo their number; where the
	// broker has no partitions it is ignored).
	Produce func(t testing.TB, partition int, ms ...broker.Outgoing)
	// Unsettled is how many messages the broker would still deliver to the group, were all processes gone now: by what it has
	// stored, not by what an adapter believes.
	Unsettled func(t testing.TB) int64

	// The rest is optional.

	// Floors is the committed history by partition, oldest first: for each the offset below which all is settled.
	Floors func(t testing.TB) map[string][]int64
	// Pulls is how many requests for messages the group has sent, Heartbeats how many heartbeats or extensions.
	Pulls, Heartbeats func(t testing.TB) int64
	// Publisher makes a publisher. MaxMessageBytes is what it may publish at most.
	Publisher       func(t testing.TB) broker.Publisher
	MaxMessageBytes int
	// Outputs names a topic of one partition that the group does not read, where the cases' outputs go; needed with Traits.Atomic,
	// as is Stored: what somebody else reads there who reads only what is committed, in its order.
	Outputs string
	Stored  func(t testing.TB, topic string) []broker.Message

	// Down makes the broker unreachable for everybody, publishers of Publisher included, Up undoes it. What is stored stays.
	Down, Up func(t testing.TB)
	// Revoke takes a claim gently, with notice: another process of the group gets it when it was released, if there is one. It does
	// not wait. Revoke, Steal and Bounce do nothing when the claim has turned meanwhile.
	Revoke func(t testing.TB, c *broker.Claim)
	// Steal takes a claim at once, without notice. It does not wait until the process knows. A process that is alone in the group
	// gets the next one.
	Steal func(t testing.TB, c *broker.Claim)
	// Bounce takes a claim gently and gives the same process a new one for the same partition. It does not wait.
	Bounce func(t testing.TB, c *broker.Claim)
	// Redeliver makes the broker deliver a message again that is out. It does not wait.
	Redeliver func(t testing.TB, m *broker.Message)
	// ForgetSettles makes the broker forget the settles of the last second, as one that was killed before it wrote them down. All
	// processes are told what they would be told after that. The adapter has to remember those (see Redeliveries in package broker).
	ForgetSettles func(t testing.TB)
	// FailSettles lets the next n commits or settles that arrive fail, in a way that another try cures; 0: none any more.
	FailSettles func(t testing.TB, n int)
	// SlowSettles lets each exchange with the broker take so much longer, on its way there: a settle is settled so much later. 0
	// undoes it. What keeps a member within its lease may be left as it is.
	SlowSettles func(t testing.TB, d time.Duration)
	// Trim drops the first n messages of partition 0 of the topic, as retention does: of all that were ever produced, those included
	// that are settled, or gone already. What follows them stays. What is out of them stays out, may be settled as ever, and does
	// not come again. A case calls it once at most.
	Trim func(t testing.TB, topic string, n int)
	// Recreate deletes the topic (or the stream) and makes it again, empty: its offsets begin anew.
	Recreate func(t testing.TB, topic string)
	// Undecodable stores something that the adapter cannot make a message of.
	Undecodable func(t testing.TB, topic string)
	// Misconfigured makes a source that the broker refuses at Open for its configuration, and will refuse until somebody changes it.
	Misconfigured func(t testing.TB) broker.Source
}

// A Process is one process of the group. In one test binary it is a source with a connection of its own. Except Source all is
// optional. At a case's end Thaw and Heal are called on every process, also on one that was never frozen or cut off, or was
// killed: they do nothing then.
type Process struct {
	Source broker.Source
	// Kill ends it as SIGKILL does: nothing is sent any more, not even a goodbye by the protocol. Its Receive returns an error soon,
	// without a Close; a Kill may call Close itself, with a ctx that has ended, when nothing gets through any more. Close is called
	// later all the same.
	Kill func()
	// Freeze stops it as SIGSTOP does, until Thaw. The suite does not call the source meanwhile.
	Freeze, Thaw func()
	// Cut loses what is sent in a direction, without closing the connection, until Heal.
	Cut  func(d Direction)
	Heal func()
	// EndReceive makes Receive end with an error that stays until a person acts (see broker.Source), and claims go on. It does not
	// wait. Unsettled may count what it stored for that, and a partition where it stored something may be of no use afterwards.
	EndReceive func()
}

// A Direction is one way of a connection.
type Direction int

const (
	// ToBroker: what the process sends gets lost.
	ToBroker Direction = iota + 1
	// FromBroker: what the broker sends gets lost.
	FromBroker
	// Both.
	Both
)

func (d Direction) String() string {
	return [...]string{"", "to the broker", "from the broker", "both ways"}[d]
}

func (h Harness) withDefaults() Harness {
	if h.RevokeWait == 0 {
		h.RevokeWait = 2 * h.Lease
	}
	if h.Patience == 0 {
		h.Patience = 20 * time.Second
	}
	if h.Seed == 0 {
		h.Seed = 1
	}
	return h
}
