package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// A coordinator sends requests to the broker that coordinates a group. It is found once and remembered until a broker says that
// it is not, or does not answer. Safe for concurrent use.
type coordinator struct {
	c     *cluster
	group string

	mu    sync.Mutex
	node  int32
	found bool
	doubt doubt
}

func (k *coordinator) find(ctx context.Context) (int32, error) {
	k.mu.Lock()
	node, found := k.node, k.found
	k.mu.Unlock()
	if found {
		return node, nil
	}
	w := writer{}
	w.str(k.group)
	w.i8(0)
	r, err := k.c.do(ctx, anyNode, keyFindCoordinator, 1, w.b)
	if err != nil {
		return 0, err
	}
	if node, err = readCoordinator(r); err != nil {
		return 0, fmt.Errorf("finding the group's coordinator: %w", err)
	}
	k.mu.Lock()
	k.node, k.found = node, true
	k.mu.Unlock()
	return node, nil
}

func readCoordinator(r *reader) (node int32, err error) {
	r.i32()
	if err := codeErr(r.i16()); err != nil {
		return 0, err
	}
	r.str()
	node = r.i32()
	return node, r.err()
}

func (k *coordinator) forget() {
	k.mu.Lock()
	k.found = false
	k.mu.Unlock()
}

func (k *coordinator) do(ctx context.Context, key, version int16, body []byte) (*reader, error) {
	node, err := k.find(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := k.c.pick(ctx, node, key, version); err != nil {
		k.forgetUnless(ctx)
		return nil, err
	}
	timeout := k.c.timeout
	if key == keyJoinGroup || key == keySyncGroup {
		timeout = 24 * 60 * 60 * 1e9 // the caller bounds it
	}
	r, err := k.c.exchange(ctx, &request{node: node, key: key, version: version, body: body}, timeout)
	if err != nil {
		k.forgetUnless(ctx)
	}
	return r, err
}

// forgetUnless keeps the coordinator when the caller wants no answer any more. One that came too late for the caller's patience
// is none: the broker may hang, and another one be the coordinator by now.
func (k *coordinator) forgetUnless(ctx context.Context) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		k.forget()
	}
}

// check turns an answer's code into an error, and forgets a broker that is not the coordinator.
func (k *coordinator) check(what string, code int16) error {
	err := codeErr(code)
	switch codeOf(err) {
	case kafka.GroupCoordinatorNotAvailable, kafka.NotCoordinatorForGroup:
		k.forget()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// A memberID is who we are in the group: what each request of a member carries.
type memberID struct {
	member     string
	instance   string
	generation int32 // or epoch
	modern     bool  // of a group that assigns partitions itself: it wants newer requests
}

// A joined is the answer to JoinGroup.
type joined struct {
	memberID
	protocol string
	leads    bool
	subs     []subscriber // for the leader
}

func (k *coordinator) join(ctx context.Context, s memberID, cfg *Config, name string, subscription []byte) (j joined, err error) {
	w := writer{}
	w.str(k.group)
	w.i32(int32(cfg.SessionTimeout.Milliseconds()))
	w.i32(int32(cfg.RebalanceTimeout.Milliseconds()))
	w.str(s.member)
	w.nullable(s.instance)
	w.str("consumer")
	w.array(1)
	w.str(name)
	w.bytes(subscription)
	r, err := k.do(ctx, keyJoinGroup, 5, w.b)
	if err != nil {
		return j, err
	}
	j, code, err := readJoined(r)
	if err != nil {
		return j, err
	}
	j.instance = s.instance
	return j, k.check("joining the group", code)
}

func readJoined(r *reader) (j joined, code int16, err error) {
	r.i32()
	code = r.i16()
	j.generation, j.protocol = r.i32(), r.str()
	leader := r.str()
	j.member = r.str()
	j.leads = leader == j.member
	for n := r.array(); n > 0 && !r.bad; n-- {
		sub := subscriber{id: r.str(), instance: r.str()}
		sub.read(r.bytes())
		j.subs = append(j.subs, sub)
	}
	return j, code, r.err()
}

func (k *coordinator) sync(ctx context.Context, s memberID, plan map[string][]partitionID) ([]partitionID, error) {
	w := writer{}
	w.str(k.group)
	s.write(&w)
	w.array(len(plan))
	for id, ps := range plan {
		w.str(id)
		w.bytes(assignment(ps))
	}
	r, err := k.do(ctx, keySyncGroup, 3, w.b)
	if err != nil {
		return nil, err
	}
	r.i32()
	if err := k.check("syncing with the group", r.i16()); err != nil {
		return nil, err
	}
	b := r.bytes()
	if r.bad {
		return nil, r.err()
	}
	return readAssignment(b)
}

func (s memberID) write(w *writer) {
	w.i32(s.generation)
	w.str(s.member)
	w.nullable(s.instance)
}

func (k *coordinator) heartbeat(ctx context.Context, s memberID) error {
	w := writer{}
	w.str(k.group)
	s.write(&w)
	r, err := k.do(ctx, keyHeartbeat, 3, w.b)
	if err != nil {
		return err
	}
	r.i32()
	code := r.i16()
	if r.bad {
		return r.err()
	}
	return k.check("heartbeat", code)
}

func (k *coordinator) leave(ctx context.Context, s memberID) error {
	node, err := k.find(ctx)
	if err != nil {
		return err
	}
	version, err := k.c.pick(ctx, node, keyLeaveGroup, 3, 2)
	if err != nil {
		k.forgetUnless(ctx)
		return err
	}
	w := writer{}
	w.str(k.group)
	if version == 3 {
		w.array(1)
		w.str(s.member)
		w.nullable(s.instance)
	} else { // Kafka 2.3: one member
		w.str(s.member)
	}
	r, err := k.do(ctx, keyLeaveGroup, version, w.b)
	if err != nil {
		return err
	}
	r.i32()
	code := r.i16()
	if version == 3 {
		r.each(func() { // members
			r.str()
			r.str()
			r.i16()
		})
	}
	if r.bad {
		return r.err()
	}
	return k.check("leaving the group", code)
}

// A commitment is what is to be committed of one partition.
type commitment struct {
	partitionID
	topic    topicID // whose messages they are; zero where the broker has no ids
	offset   int64
	metadata string
	after    int32 // one more than the epoch, see commitMemory; 0: that is not known
	err      error // the answer
}

func (c *commitment) position() position { return position{offset: c.offset, metadata: c.metadata} }

// topics are how topics are laid out, as the coordinator knows it.
func (k *coordinator) topics(ctx context.Context, names []string) (map[string]topic, error) {
	node, err := k.find(ctx)
	if err != nil {
		return nil, err
	}
	ts, err := k.c.topicsBy(ctx, node, names)
	if err != nil {
		k.forgetUnless(ctx)
	}
	return ts, err
}

// commit sends offsets with their metadata and fills in each one's answer. An error says that there is none, and leaves a doubt.
func (k *coordinator) commit(ctx context.Context, s memberID, cs []*commitment) error {
	sent := time.Now()
	var err error
	for _, some := range portions(cs) {
		if err = k.sendCommit(ctx, s, some); err != nil {
			break
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.doubt.unanswered(sent)
	} else {
		k.doubt.answered(time.Now(), k.c.timeout)
	}
	return err
}

const (
	// commitLimit is how large a commit is made. A coordinator writes all of one at once, and refuses one that is larger than its
	// topic takes: a megabyte by default.
	commitLimit = 256 << 10
	// commitOverhead is what a coordinator writes of each partition beside metadata and topic: the group's name first of all.
	commitOverhead = 512
)

// portions are commitments as they go into requests, one after the other.
func portions(cs []*commitment) (all [][]*commitment) {
	from, size := 0, 0
	for i, c := range cs {
		n := len(c.metadata) + len(c.partitionID.topic) + commitOverhead
		if size += n; size > commitLimit && i > from {
			all, from, size = append(all, cs[from:i]), i, n
		}
	}
	return append(all, cs[from:])
}

// doubtOver says, once, that it is time to commit again what may have been set back.
func (k *coordinator) doubtOver(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.doubt.over(now)
}

func (k *coordinator) sendCommit(ctx context.Context, s memberID, cs []*commitment) error {
	version := int16(7)
	if s.modern {
		version = 9
	}
	r, err := k.do(ctx, keyOffsetCommit, version, commitBody(k.group, s, cs))
	if err != nil {
		return err
	}
	answered, err := readCodes(r)
	if err != nil {
		return err
	}
	for _, c := range cs {
		code, ok := answered[c.partitionID]
		if !ok {
			return fmt.Errorf("committing: no answer for %s/%d: %w", c.topic, c.no, errShort)
		}
		c.err = k.check("committing", code)
	}
	return nil
}

func commitBody(group string, s memberID, cs []*commitment) []byte {
	w := writer{flexible: s.modern}
	w.str(group)
	s.write(&w)
	w.commitments(cs)
	w.tags()
	return w.b
}

// commitments writes what is to be committed, by topics.
func (w *writer) commitments(cs []*commitment) {
	of := make(map[partitionID]*commitment, len(cs))
	ps := make([]partitionID, len(cs))
	for i, c := range cs {
		ps[i], of[c.partitionID] = c.partitionID, c
	}
	w.partitions(ps, func(p partitionID) {
		w.i32(p.no)
		w.i64(of[p].offset)
		w.i32(of[p].after - 1) // leader epoch
		w.nullable(of[p].metadata)
		w.tags()
	})
}

// readCodes reads the code of each partition: of OffsetCommit, TxnOffsetCommit and AddPartitionsToTxn.
func readCodes(r *reader) (map[partitionID]int16, error) {
	r.i32()
	answered := make(map[partitionID]int16)
	r.each(func() {
		name := r.str()
		r.each(func() {
			no := r.i32()
			answered[partitionID{name, no}] = r.i16()
			r.tags()
		})
		r.tags()
	})
	r.tags()
	return answered, r.err()
}

// A position is what is committed of a partition; offset -1: nothing.
type position struct {
	offset   int64
	metadata string
	after    int32 // see commitment; 0: that is not known, or does not matter
	err      error
}

// positions are what is committed of partitions; nil means all of which something is. s asks; nobody does where it is zero.
func (k *coordinator) positions(ctx context.Context, s memberID, ps []partitionID) (map[partitionID]position, error) {
	version, read := int16(5), readPositions
	if s.modern {
		version, read = 9, readGroupPositions
	}
	r, err := k.do(ctx, keyOffsetFetch, version, positionsBody(k.group, s, ps))
	if err != nil {
		return nil, err
	}
	at, code, err := read(r)
	if err != nil {
		return nil, err
	}
	return at, k.check("reading committed offsets", code)
}

func positionsBody(group string, s memberID, ps []partitionID) []byte {
	w := writer{flexible: s.modern}
	if s.modern { // a list of groups
		w.array(1)
		w.str(group)
		w.str(s.member)
		w.i32(s.generation)
	} else {
		w.str(group)
	}
	if ps == nil {
		w.array(-1)
	} else {
		w.partitions(ps, w.number)
	}
	if s.modern {
		w.tags()
		w.bool(true) // wait for transactions that are open
		w.tags()
	}
	return w.b
}

func readPositions(r *reader) (at map[partitionID]position, code int16, err error) {
	r.i32()
	at = make(map[partitionID]position)
	r.positions(at)
	code = r.i16()
	r.tags()
	return at, code, r.err()
}

// readGroupPositions reads them of the one group that was asked for.
func readGroupPositions(r *reader) (at map[partitionID]position, code int16, err error) {
	r.i32()
	at = make(map[partitionID]position)
	r.each(func() {
		r.str() // group
		r.positions(at)
		code = r.i16()
		r.tags()
	})
	r.tags()
	return at, code, r.err()
}

func (r *reader) positions(at map[partitionID]position) {
	r.each(func() {
		name := r.str()
		r.each(func() {
			no := r.i32()
			offset := r.i64()
			after := r.i32() + 1
			at[partitionID{name, no}] = position{offset: offset, after: after, metadata: r.str(), err: codeErr(r.i16())}
			r.tags()
		})
		r.tags()
	})
}
