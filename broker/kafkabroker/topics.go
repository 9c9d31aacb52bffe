package kafkabroker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	kafka "github.com/segmentio/kafka-go"
)

// A topicID is Kafka's; zero where the broker has none (before 2.8).
type topicID [16]byte

// log is what progress.log keeps of it.
func (id topicID) log() uint64 { return binary.BigEndian.Uint64(id[:8]) }

// partition names the log of a partition, for Message.Log. Empty where the broker has no ids: a name alone is also that of a
// topic made anew.
func (id topicID) partition(no int32) string {
	if id == (topicID{}) {
		return ""
	}
	return fmt.Sprintf("%x/%d", id[:], no)
}

// A topic is how a topic is laid out.
type topic struct {
	name    string
	id      topicID
	leaders []int32 // by partition; -1: none at the moment
	epochs  []int32 // of the leaders, by partition
	err     error
}

// topics asks how topics are laid out, never creating any; nil names mean all.
func (c *cluster) topics(ctx context.Context, names []string) (map[string]topic, error) {
	return c.topicsBy(ctx, anyNode, names)
}

// topicsBy is topics as one broker knows them.
func (c *cluster) topicsBy(ctx context.Context, node int32, names []string) (map[string]topic, error) {
	version, err := c.pick(ctx, node, keyMetadata, 12, 11, 10, 7)
	if err != nil {
		return nil, err
	}
	r, err := c.do(ctx, node, keyMetadata, version, metadataBody(version, names))
	if err != nil {
		return nil, err
	}
	ts, brokers, err := readTopics(r, version)
	if err == nil {
		c.told(brokers)
	}
	return ts, err
}

func metadataBody(version int16, names []string) []byte {
	w := writer{flexible: version >= 9}
	if names == nil {
		w.array(-1)
	} else {
		w.array(len(names))
	}
	for _, name := range names {
		if version >= 10 {
			w.id(topicID{})
		}
		w.str(name)
		w.tags()
	}
	w.bool(false) // create missing topics
	if 8 <= version && version <= 10 {
		w.bool(false) // cluster authorized operations
	}
	if version >= 8 {
		w.bool(false) // topic authorized operations
	}
	w.tags()
	return w.b
}

// readTopics reads topics by their names, and the addresses of brokers.
func readTopics(r *reader, version int16) (ts map[string]topic, brokers map[int32]string, err error) {
	r.i32()
	brokers = make(map[int32]string)
	for n := r.array(); n > 0 && !r.bad; n-- {
		id := r.i32()
		host := r.str()
		brokers[id] = net.JoinHostPort(host, strconv.Itoa(int(r.i32())))
		r.str()
		r.tags()
	}
	r.str()
	r.i32()
	ts = make(map[string]topic)
	for n := r.array(); n > 0 && !r.bad; n-- {
		t := readTopic(r, version)
		ts[t.name] = t
	}
	return ts, brokers, r.err()
}

// unlisted is how many of a topic's partitions an answer may leave out. Brokers list all of them, so their numbers are below
// their count; a bound on the numbers alone would let a few bytes claim megabytes.
const unlisted = 16

func readTopic(r *reader, version int16) topic {
	t := topic{err: codeErr(r.i16()), name: r.str()}
	if version >= 10 {
		t.id = r.id()
	}
	r.i8()
	parts := r.array()
	for n := parts; n > 0 && !r.bad; n-- {
		r.i16()
		no, leader := r.i32(), r.i32()
		epoch := r.i32()
		for range 3 { // replicas, in sync, offline
			for m := r.array(); m > 0 && !r.bad; m-- {
				r.i32()
			}
		}
		r.tags()
		if no < 0 || int(no) >= parts+unlisted {
			r.bad, r.b = true, nil
			break
		}
		for int32(len(t.leaders)) <= no {
			t.leaders, t.epochs = append(t.leaders, -1), append(t.epochs, -1)
		}
		t.leaders[no], t.epochs[no] = leader, epoch
	}
	if version >= 8 {
		r.i32()
	}
	r.tags()
	if t.err == nil && len(t.leaders) == 0 { // of a broker that has just started: there is no topic without partitions
		t.err = kafka.LeaderNotAvailable
	}
	return t
}

// codeOf is the Kafka error code in err, or 0.
func codeOf(err error) kafka.Error {
	var code kafka.Error
	if errors.As(err, &code) {
		return code
	}
	return 0
}

// refused says that another try would not change the answer.
func refused(err error) bool { return refusedNow(err) && !errors.Is(err, errRereads) }

// refusedNow is refused, also of a login with a password that may be another one at the next try.
func refusedNow(err error) bool {
	return errors.Is(err, errVersion) || slices.Contains([]kafka.Error{
		kafka.TopicAuthorizationFailed, kafka.GroupAuthorizationFailed, kafka.ClusterAuthorizationFailed,
		kafka.SASLAuthenticationFailed,
		kafka.UnsupportedSASLMechanism, kafka.InvalidSessionTimeout, kafka.InvalidGroupId, kafka.InconsistentGroupProtocol,
		kafka.InvalidTopic,
		kafka.FencedInstanceID,
	}, codeOf(err))
}
