package kafkabroker

import (
	"maps"
	"slices"
	"time"
)

// A roster has the partitions of this process, each in one place from its assignment to its release. It knows nothing of
// messages.
//
//	told ──▶ begin ──▶ asked ──▶ found ──▶ add ──▶ open ──▶ draining ──▶ last ──▶ fenced ──▶ concluded ──▶ released
//	           └─────── cancel ──▶ released          └───────────────────▶ lose (lost, or begun anew)
//
// What last and lose take out of it has a claim that is still to be ended: endClaims.
type roster struct {
	changes   []change // told by the membership, and not followed yet
	beginning map[partitionID]*start
	resets    map[partitionID]error // why those are to begin anew that have not
	asked     []*start              // of those: to be looked up
	found     []*start              // of those: looked up
	parts     map[partitionID]*part // open and draining
	turns     []*part               // the same, for whoever looks at all of them
	lists
	toEnd   []endingClaim
	ending  []*part // fenced and concluded: a last commit is to be made
	leaving bool    // nothing begins any more: what is ending is all there is
}

// An endingClaim is a part that is fenced, and why its claim is to be ended now.
type endingClaim struct {
	p    *part
	err  error
	last bool // a last commit follows
}

func newRoster() roster {
	return roster{
		parts: make(map[partitionID]*part), beginning: make(map[partitionID]*start), resets: make(map[partitionID]error),
		lists: lists{idle: make(map[int32][]*part)},
	}
}

// told notes what the membership says; forget takes a partition out of it that was lost before it was followed.
func (r *roster) told(c change) { r.changes = append(r.changes, c) }

func (r *roster) forget(id partitionID) {
	for i := range r.changes {
		r.changes[i].parts = slices.DeleteFunc(r.changes[i].parts, func(x partitionID) bool { return x == id })
	}
}

// begin has it looked up where a partition begins. Why it is to begin anew is remembered until it has: a group that assigns by
// topic ids takes the partition away as soon as it hears that the topic was made anew, forgets what was committed, and gives it
// back.
func (r *roster) begin(id partitionID, reset error) {
	if r.beginning[id] == nil && r.parts[id] == nil {
		if reset != nil {
			r.resets[id] = reset
		}
		b := newStart(id, reset)
		b.before = r.resets[id]
		r.beginning[id] = b
		r.asked = append(r.asked, b)
	}
}

// renew remembers that a partition is to begin anew when it comes back.
func (r *roster) renew(id partitionID, why error) { r.resets[id] = why }

// outlive forgets why those are to begin anew that are no more: what comes under their names is new by itself.
func (r *roster) outlive(isGone func(partitionID, topicID) bool) {
	maps.DeleteFunc(r.resets, func(id partitionID, _ error) bool { return isGone(id, topicID{}) })
}

// cancel stops one from beginning, and says whether it was.
func (r *roster) cancel(id partitionID) (was bool) {
	b := r.beginning[id]
	if b != nil {
		b.unwanted.Store(true)
		delete(r.beginning, id)
	}
	return b != nil
}

// begins says whether it is still to begin as looked up.
func (r *roster) begins(b *start) bool { return r.beginning[b.partitionID] == b }

func (r *roster) add(b *start, p *part) {
	delete(r.beginning, b.partitionID)
	delete(r.resets, b.partitionID)
	r.parts[b.partitionID] = p
	r.turns = append(r.turns, p)
	r.enter(p)
}

// sooner is the earlier time of two, of which either may be zero for never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// lose takes a part out whose progress cannot be committed.
func (r *roster) lose(p *part, err error) { r.take(endingClaim{p: p, err: err}) }

// last takes a part out whose last commit follows the end of its claim.
func (r *roster) last(p *part, err error) {
	r.take(endingClaim{p: p, err: err, last: true})
	r.ending = append(r.ending, p)
}

func (r *roster) take(e endingClaim) {
	e.p.stage = fenced
	r.forgets(e.p)
	if r.parts[e.p.partitionID] == e.p {
		delete(r.parts, e.p.partitionID)
	}
	if i := slices.Index(r.turns, e.p); i >= 0 {
		r.turns = append(r.turns[:i:i], r.turns[i+1:]...)
	}
	r.toEnd = append(r.toEnd, e)
}

// keeps says whether a part was not lost: it is here, or its last commit is to be made.
func (r *roster) keeps(p *part) bool {
	return r.parts[p.partitionID] == p || slices.Contains(r.ending, p)
}

// concluded says whether the claim was ended, and its last commit is all that is left.
func (r *roster) concluded(p *part) bool {
	return p.stage == concluded && slices.Contains(r.ending, p)
}

// endClaims are the claims that are to be ended now.
func (r *roster) endClaims() (es []endingClaim) {
	es, r.toEnd = r.toEnd, nil
	return es
}

// ends says whether a last commit of the partition is to be made; it is released after that.
func (r *roster) ends(id partitionID) bool {
	return slices.ContainsFunc(r.ending, func(p *part) bool { return p.partitionID == id })
}

// takeEnding takes out those that have no last commit to be made any more.
func (r *roster) takeEnding(which func(*part) bool) (out []*part) {
	r.ending = slices.DeleteFunc(r.ending, func(p *part) bool {
		if which(p) {
			out = append(out, p)
			return true
		}
		return false
	})
	return out
}
