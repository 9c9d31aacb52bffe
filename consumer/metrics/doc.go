// Package metrics exposes a consumer to Prometheus.
//
// A Collector is both an observer of the consumer and a collector of Prometheus:
//
//	m := metrics.New("orders")
//	c, err := consumer.New(consumer.Config{Name: "orders", Observers: []consumer.Observer{m.Observe}, …})
//	m.Watch(c)
//	registry.MustRegister(m)
//
// Every metric begins with longshore_ and has the label consumer. Other labels take their values from lists that are written down
// here (a state, a class of failure, a reason), never from messages: no key or header can become a series. What does not fit a
// list is "other". The partitions of lag are those which the consumer holds, and empty on JetStream, so that one query is right
// on both:
//
//	sum by (consumer) (max by (consumer, topic, partition) (longshore_lag_messages))
//
// What is unknown is absent. A lag that nobody has learned yet is no series, and never 0: who scales by it would take workers
// away.
package metrics
