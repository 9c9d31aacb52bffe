package config

import "github.com/longshoremq/longshore/consumer"

// checkOrder: what is said of lanes, and of what becomes of them at another process, has an order.
func (cc *consumerCheck) checkOrder() {
	if cc.Order == consumer.OrderKey || cc.Order == consumer.OrderPartition {
		return
	}
	if cc.has(".lane") {
		cc.find(".lane", "is set and order is not: there are no lanes")
	}
	for _, in := range cc.Reads() {
		if key := "." + in.Name + ".nats.revoke_wait"; cc.has(key) {
			cc.warn(cc.at+key, "is set and order is not: nothing is ever revoked")
		}
	}
}
