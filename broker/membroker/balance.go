package membroker

// balance spreads the partitions over the members: sticky, so that only those move that must. Who has to give one up is told, and
// the next owner gets it when it was released. A member that takes no more keeps what it has until it leaves; where there is no
// other, what is free stays so until somebody joins.
func (g *group) balance() {
	var takers []*member
	for _, m := range g.members {
		if !m.leaving {
			takers = append(takers, m)
		}
	}
	var free []*cursor
	var owners []*member
	for _, c := range g.cursors {
		if c.owner == nil || !c.owner.leaving {
			free, owners = append(free, c), append(owners, c.owner)
		}
	}
	for i, m := range spread(owners, takers) {
		free[i].moveTo(m)
	}
}

// spread decides who should own each partition, given who does. Each gets the same number or one more; without takers all stay
// where they are.
func spread(owners, takers []*member) []*member {
	out := make([]*member, len(owners))
	if len(takers) == 0 {
		copy(out, owners)
		return out
	}
	has := make(map[*member]int, len(takers))
	for _, m := range takers {
		has[m] = 0
	}
	quota, extra := len(owners)/len(takers), len(owners)%len(takers)
	for i, m := range owners {
		n, taker := has[m]
		switch {
		case m == nil || !taker:
			continue
		case n < quota:
		case n == quota && extra > 0:
			extra--
		default:
			continue
		}
		out[i] = m
		has[m]++
	}
	for i := range out {
		if out[i] == nil {
			out[i] = fewest(takers, has)
			has[out[i]]++
		}
	}
	return out
}

func fewest(takers []*member, has map[*member]int) *member {
	best := takers[0]
	for _, m := range takers[1:] {
		if has[m] < has[best] {
			best = m
		}
	}
	return best
}

// moveTo gives the partition to m, by way of its owner where it has one.
func (c *cursor) moveTo(m *member) {
	switch {
	case m == nil:
	case c.owner == nil:
		c.assign(m, assigned)
	case c.owner == m && !c.moving:
		c.to = nil
	case c.moving:
		c.to = m
	default:
		c.to, c.moving = m, true
		c.owner.tell(notice{kind: revoked, cur: c, term: c.term})
	}
}
