package kafkabroker

import (
	"context"
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

// forgetUnless keeps the coordinator when it was the caller who gave up.
func (k *coordinator) forgetUnless(ctx context.Context) {
	if ctx.Err() == nil {
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
	generation int32
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

const keyDescribeGroups = 15

// given are the partitions that members of the group have been given; none while they join.
func (k *coordinator) given(ctx context.Context) (map[partitionID]bool, error) {
	w := writer{}
	w.array(1)
	w.str(k.group)
	w.bool(false) // authorized operations
	r, err := k.do(ctx, keyDescribeGroups, 3, w.b)
	if err != nil {
		return nil, err
	}
	given, code, err := readGiven(r)
	if err != nil {
		return nil, err
	}
	return given, k.check("describing the group", code)
}

func readGiven(r *reader) (given map[partitionID]bool, code int16, err error) {
	r.i32()
	given = make(map[partitionID]bool)
	for n := r.array(); n > 0 && !r.bad; n-- {
		code = r.i16()
		r.str() // group
		r.str() // state
		r.str() // kind of protocol
		r.str() // protocol
		for m := r.array(); m > 0 && !r.bad; m-- {
			r.str()   // member
			r.str()   // client
			r.str()   // host
			r.bytes() // subscription
			ps, err := readAssignment(r.bytes())
			if err != nil {
				return nil, 0, err
			}
			for _, p := range ps {
				given[p] = true
			}
		}
		r.i32() // authorized operations
	}
	return given, code, r.err()
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
	w := writer{}
	w.str(k.group)
	w.array(1)
	w.str(s.member)
	w.nullable(s.instance)
	r, err := k.do(ctx, keyLeaveGroup, 3, w.b)
	if err != nil {
		return err
	}
	r.i32()
	code := r.i16()
	r.each(func() { // members
		r.str()
		r.str()
		r.i16()
	})
	if r.bad {
		return r.err()
	}
	return k.check("leaving the group", code)
}

// A commitment is what is to be committed of one partition.
type commitment struct {
	partitionID
	offset   int64
	metadata string
	err      error // the answer
}

func (c *commitment) position() position { return position{offset: c.offset, metadata: c.metadata} }

// commit sends offsets with their metadata and fills in each one's answer. An error says that there is none, and leaves a doubt.
func (k *coordinator) commit(ctx context.Context, s memberID, cs []*commitment) error {
	sent := time.Now()
	err := k.sendCommit(ctx, s, cs)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.doubt.unanswered(sent)
	} else {
		k.doubt.answered(time.Now(), k.c.timeout)
	}
	return err
}

// doubtOver says, once, that it is time to commit again what may have been set back.
func (k *coordinator) doubtOver(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.doubt.over(now)
}

func (k *coordinator) sendCommit(ctx context.Context, s memberID, cs []*commitment) error {
	w := writer{}
	w.str(k.group)
	s.write(&w)
	by := make(map[string][]*commitment)
	for _, c := range cs {
		by[c.topic] = append(by[c.topic], c)
	}
	w.array(len(by))
	for name, cs := range by {
		w.str(name)
		w.array(len(cs))
		for _, c := range cs {
			w.i32(c.no)
			w.i64(c.offset)
			w.i32(-1)
			w.nullable(c.metadata)
		}
	}
	r, err := k.do(ctx, keyOffsetCommit, 7, w.b)
	if err != nil {
		return err
	}
	answered, err := readCommitted(r)
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

// readCommitted reads the code of each partition.
func readCommitted(r *reader) (map[partitionID]int16, error) {
	r.i32()
	answered := make(map[partitionID]int16)
	for n := r.array(); n > 0 && !r.bad; n-- {
		name := r.str()
		for m := r.array(); m > 0 && !r.bad; m-- {
			no := r.i32()
			answered[partitionID{name, no}] = r.i16()
		}
	}
	return answered, r.err()
}

// A position is what is committed of a partition; offset -1: nothing.
type position struct {
	offset   int64
	metadata string
	err      error
}

// positions are what is committed of partitions; nil means all of which something is.
func (k *coordinator) positions(ctx context.Context, ps []partitionID) (map[partitionID]position, error) {
	w := writer{}
	w.str(k.group)
	if ps == nil {
		w.array(-1)
	} else {
		w.partitions(ps, w.i32)
	}
	r, err := k.do(ctx, keyOffsetFetch, 5, w.b)
	if err != nil {
		return nil, err
	}
	at, code, err := readPositions(r)
	if err != nil {
		return nil, err
	}
	return at, k.check("reading committed offsets", code)
}

func readPositions(r *reader) (at map[partitionID]position, code int16, err error) {
	r.i32()
	at = make(map[partitionID]position)
	for n := r.array(); n > 0 && !r.bad; n-- {
		name := r.str()
		for m := r.array(); m > 0 && !r.bad; m-- {
			no := r.i32()
			offset := r.i64()
			r.i32()
			at[partitionID{name, no}] = position{offset: offset, metadata: r.str(), err: codeErr(r.i16())}
		}
	}
	return at, r.i16(), r.err()
}
