package kafkabroker

import (
	"context"
	"errors"
	"fmt"

	kafka "github.com/segmentio/kafka-go"
)

// A spoken is which protocol the members of a group speak.
type spoken struct {
	consumer bool
	members  int
}

// name is what Config.Membership calls it; empty: there are no members.
func (s spoken) name() string {
	switch {
	case s.members == 0:
		return ""
	case s.consumer:
		return "consumer"
	}
	return "classic"
}

// spoken asks the coordinator what the group's members speak. Brokers before Kafka 4.0 know only one protocol; 3.9 lists the
// request for groups of the other one, and refuses it.
func (k *coordinator) spoken(ctx context.Context) (spoken, error) {
	s, err := k.describeModern(ctx)
	switch code := codeOf(err); {
	case code == kafka.GroupIdNotFound, code == kafka.UnsupportedVersion, errors.Is(err, errVersion):
	default:
		return s, err
	}
	d, err := k.describe(ctx)
	return spoken{members: d.members}, err
}

// describeModern asks for a group of the consumer protocol (ConsumerGroupDescribe, version 0).
func (k *coordinator) describeModern(ctx context.Context) (spoken, error) {
	w := writer{flexible: true}
	w.array(1)
	w.str(k.group)
	w.bool(false) // authorized operations
	w.tags()
	r, err := k.do(ctx, keyConsumerGroupDescribe, 0, w.b)
	if err != nil {
		return spoken{}, err
	}
	s, code, err := readSpoken(r)
	if err != nil {
		return spoken{}, err
	}
	return s, k.check("describing the group", code)
}

// readSpoken reads the head of the answer; there is one group in it.
func readSpoken(r *reader) (s spoken, code int16, err error) {
	r.i32() // throttled
	s.consumer = true
	if r.array() > 0 {
		code = r.i16()
		r.str() // message
		r.str() // group
		r.str() // state
		r.i32() // epoch
		r.i32() // that of the assignment
		r.str() // assignor
		s.members = max(0, r.array())
	}
	return s, code, r.err()
}

// isForeign says that a group which we may not join is of neither protocol: a share group, or one of Kafka Streams. Such a group
// keeps its name also when it has no members.
func (k *coordinator) isForeign(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, k.c.timeout)
	defer cancel()
	if _, err := k.describeModern(ctx); codeOf(err) != kafka.GroupIdNotFound {
		return false
	}
	d, err := k.describe(ctx)
	return err == nil && d.state == stateDead || codeOf(err) == kafka.GroupIdNotFound
}

// foreign says so, with what was answered.
func (k *coordinator) foreign(err error) error {
	return fmt.Errorf("%w: %w", wrong("Group",
		"is %q, and a group of another kind has that name, as a share group: choose another name", k.group), err)
}

// full says that the group has no room, and which setting of the brokers makes it so large.
func (k *coordinator) full(err error, setting string) error {
	return fmt.Errorf("%w: group %s has as many members as its brokers let it have (%s)", err, k.group, setting)
}

// sharedBy says how a classic group shares its partitions out, by the name that Config has for it or else the one that clients
// have; empty: it does not say, for it is about to change that, perhaps.
func (k *coordinator) sharedBy(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, k.c.timeout)
	defer cancel()
	d, err := k.describe(ctx)
	if err != nil || d.protocol == "" {
		return ""
	}
	for name, s := range schemes {
		if s.name == d.protocol {
			return fmt.Sprintf(" (it shares out by %q)", name)
		}
	}
	return fmt.Sprintf(" (it shares out by %q)", d.protocol)
}
