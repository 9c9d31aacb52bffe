// Package metrics exposes a consumer to Prometheus.
//
// A Collector is both an observer of the consumer and a collector of Prometheus:
//
//	m := metrics.New("orders")
//	c, err := consumer.New(consumer.Config{Name: "orders", Observers: []consumer.Observer{m.Observe}, …})
//	m.Watch(c)
//	registry.MustRegister(m)
//
// Every metric begins with longshore_ and has the label consumer. Other labels take their values from lists that are written down here (a state,
// a class of failure, a reason), never from messages: no topic, key or header can become a series. What does not fit a list is "other".
//
// What is unknown is absent. A lag that nobody has learned yet is no series, and never 0: who scales by it would take workers away.
package metrics
