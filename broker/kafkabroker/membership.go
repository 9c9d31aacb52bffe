package kafkabroker

import (
	"context"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/broker"
)

// A change is what a membership tells of partitions. Each is assigned, then perhaps revoking, then released by the source; or
// lost, which needs no release.
type change struct {
	kind  changeKind
	parts []partitionID
	err   error // of lost
}

type changeKind int

const (
	assigned changeKind = iota + 1
	revoking
	lost
)

// A host is what a membership asks the source that it is part of, and tells it. None of the calls blocks.
type host struct {
	topics func() []string // to subscribe to, by what is known now
	tell   func(change)
	// trouble is told of exchanges, when they began and how they failed; nil: they worked.
	trouble func(began time.Time, err error)
	say     func(broker.Event)
	find    func() // has topics looked at: the group names some that we do not know
}

// A membership is our part in a group. Nothing of the protocol shows but partitions that come and go one by one, and who we are
// for a commit, so that KIP-848 fits behind it as well.
type membership interface {
	// run takes part until ctx ends, or returns what another try would not change. After ctx has ended it does not leave the group.
	run(ctx context.Context) error
	// release says that revoked partitions are drained and committed. It does not block.
	release(parts []partitionID)
	// look takes how topics are laid out now. It does not block.
	look(v survey)
	// self is who we are in the group.
	self() memberID
	// committers says who we are for commits of partitions; false: a partition is not ours. What was asked for stays as it was: with
	// what is lost meanwhile nothing can be committed under a later name.
	committers() func(p partitionID) (memberID, bool)
	// assigns says whether a partition of ours is of that topic. Where the group assigns by topic ids it may not have heard yet
	// that a topic was made anew: until then what we have is of the old one.
	assigns(p partitionID, id topicID) bool
	// lapsed says whether nobody has answered for so long that the group may have others in our place.
	lapsed(now time.Time) bool
	// leave tells the group that we are gone, after run has returned. While the coordinator is away it tries on until ctx ends:
	// otherwise the others would wait for a session timeout.
	leave(ctx context.Context) error
}

// goodbyes is how often a goodbye is said again after an answer that does not say that the coordinator is away.
const goodbyes = 5

// sayGoodbye tries on while the coordinator is away, until ctx ends. Other answers, which a heartbeat would be sent again after,
// may pass as well, and what is not said costs the others a session; but they may also stay, and Close is not to wait for that.
func sayGoodbye(ctx context.Context, leave func() error) error {
	for again := goodbyes; ; {
		err := leave()
		switch codeOf(err) {
		case kafka.UnknownMemberId, fencedMemberEpoch, kafka.GroupIdNotFound: // we are gone already
			return nil
		case 0, kafka.GroupLoadInProgress, kafka.GroupCoordinatorNotAvailable, kafka.NotCoordinatorForGroup, kafka.RequestTimedOut:
		default:
			if again--; again < 0 || refusedForGood(err) {
				return err
			}
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, retryWait)
	}
}

// retryWait is the pause after a failed exchange, up to twice that.
const retryWait = 50 * time.Millisecond

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
