package kafkabroker

import "context"

const keyDescribeGroups = 15

// States of a classic group.
const (
	stateDead    = "Dead"               // there is none
	stateJoining = "PreparingRebalance" // it waits for all members to join
)

// A described is what a classic group says of itself.
type described struct {
	state    string // "Dead" of one that is none
	protocol string // by which its leader shares out; empty while members join
	members  int
	given    map[partitionID]bool // what its members have been given; nothing while they join
	topics   map[string]bool      // what they subscribe to; nothing while they join
}

func (k *coordinator) describe(ctx context.Context) (described, error) {
	w := writer{}
	w.array(1)
	w.str(k.group)
	w.bool(false) // authorized operations
	r, err := k.do(ctx, keyDescribeGroups, 3, w.b)
	if err != nil {
		return described{}, err
	}
	d, code, err := readDescribed(r)
	if err != nil {
		return described{}, err
	}
	return d, k.check("describing the group", code)
}

func readDescribed(r *reader) (d described, code int16, err error) {
	r.i32()
	d.given, d.topics = make(map[partitionID]bool), make(map[string]bool)
	for n := r.array(); n > 0 && !r.bad; n-- {
		code = r.i16()
		r.str() // group
		d.state = r.str()
		r.str() // kind of protocol
		d.protocol = r.str()
		for m := r.array(); m > 0 && !r.bad; m-- {
			r.str() // member
			r.str() // client
			r.str() // host
			var of subscriber
			of.read(r.bytes())
			for _, name := range of.topics {
				d.topics[name] = true
			}
			ps, err := readAssignment(r.bytes())
			if err != nil {
				return d, 0, err
			}
			for _, p := range ps {
				d.given[p] = true
			}
			d.members++
		}
		r.i32() // authorized operations
	}
	return d, code, r.err()
}
