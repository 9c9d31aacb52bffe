package config

import "github.com/longshoremq/longshore/consumer"

// checkOrder: what is said of lanes has an order.
func (d *Document) checkOrder(at string, c *Consumer) {
	if d.Has(at+".lane") && c.Order != consumer.OrderKey && c.Order != consumer.OrderPartition {
		d.Find(at+".lane", "is set and order is not: there are no lanes")
	}
}
