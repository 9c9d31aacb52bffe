package config

import "github.com/longshoremq/longshore/consumer"

// checkOrder: what is said of lanes has an order.
func (cc *consumerCheck) checkOrder() {
	if cc.has(".lane") && cc.Order != consumer.OrderKey && cc.Order != consumer.OrderPartition {
		cc.find(".lane", "is set and order is not: there are no lanes")
	}
}
