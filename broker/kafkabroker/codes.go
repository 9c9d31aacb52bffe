package kafkabroker

import (
	"fmt"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// Answers that kafka-go has no names for.
const (
	fencedMemberEpoch    kafka.Error = 110
	unreleasedInstanceID kafka.Error = 111
	unsupportedAssignor  kafka.Error = 112
	staleMemberEpoch     kafka.Error = 113
	invalidRegex         kafka.Error = 128
)

// codeNames are what Kafka calls the codes for which kafka-go has no text. Those that only brokers get from each other, and
// clients of share groups and of Kafka Streams, are not among them.
var codeNames = map[kafka.Error]string{
	kafka.NetworkException: "NETWORK_EXCEPTION", 77: "STALE_BROKER_EPOCH", 78: "OFFSET_NOT_AVAILABLE",
	80: "PREFERRED_LEADER_NOT_AVAILABLE", kafka.GroupMaxSizeReached: "GROUP_MAX_SIZE_REACHED", 109: "OFFSET_MOVED_TO_TIERED_STORAGE",
	fencedMemberEpoch: "FENCED_MEMBER_EPOCH", unreleasedInstanceID: "UNRELEASED_INSTANCE_ID",
	unsupportedAssignor: "UNSUPPORTED_ASSIGNOR", staleMemberEpoch: "STALE_MEMBER_EPOCH", 116: "UNKNOWN_CONTROLLER_ID",
	120: "TRANSACTION_ABORTABLE", invalidRegex: "INVALID_REGULAR_EXPRESSION", 129: "REBOOTSTRAP_REQUIRED",
}

// codeErr is nil for 0.
func codeErr(code int16) error {
	if code == 0 {
		return nil
	}
	if name := codeNames[kafka.Error(code)]; name != "" {
		return fmt.Errorf("%s (%w)", name, kafka.Error(code))
	}
	return kafka.Error(code)
}

// suspectClock says what to look at where a broker does not take the time of a message, which is ours: it knows no better than we
// which of its clock and ours is wrong.
func suspectClock(err error, now time.Time) error {
	if codeOf(err) != kafka.InvalidTimestamp {
		return err
	}
	return fmt.Errorf("%w (by the clock of this machine it is %s: is that right? else see message.timestamp.after.max.ms and "+
		"message.timestamp.before.max.ms of the topic)", err, now.UTC().Format(time.RFC3339))
}
