package config

var (
	orders       = []string{"none", "key", "partition"}
	lanePolicies = []string{"block", "dead_letter"}
)

// checkOrder: what is said of lanes has an order, and what an order excludes is not asked for.
func (d *Document) checkOrder(at string, c *Consumer) {
	d.oneOf(at+".order", c.Order, orders)
	ordered := c.Order == "key" || c.Order == "partition"
	if d.Has(at+".lane") && !ordered {
		d.Find(at+".lane", "is set and order is not: there are no lanes")
	}
	d.atLeast(at+".lane.limit", int64(c.Lane.Limit), 1)
	d.oneOf(at+".lane.full", c.Lane.Full, lanePolicies)
	if c.Lane.Full == "dead_letter" && c.DeadLetter == nil {
		d.Find(at+".lane.full", "is dead_letter, and there is no dead_letter")
	}
	if ordered && len(c.Retry.Topics) > 0 {
		d.Find(at+".order", "is %s, and retry.topics is set: what waits there has lost its place", c.Order)
	}
}
