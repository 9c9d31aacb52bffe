package membroker

import "github.com/longshoremq/longshore/broker"

// A grant is what was handed out, before it is copied.
type grant struct {
	sp  span
	gen uint16
	cs  *claimState
}

func (g *grant) fill(dst []broker.Message) {
	claim, name, attempt, runs := g.cs.claim, g.cs.h.name, g.sp.attempt, g.sp.runs
	partition, src := claim.Partition, g.sp.ms[g.sp.from-g.sp.base:][:g.sp.n]
	dst = dst[:len(src)]
	for i := range src {
		o, m := g.sp.from+int64(i), &dst[i]
		*m = src[i]
		m.Partition, m.Offset, m.Name = partition, o, name
		m.Attempt, m.Runs = attempt, runs
		m.Token, m.Claim = token(o, g.gen), claim
	}
}
