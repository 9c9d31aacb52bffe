//go:build unix

package kafkad

// ErrUnavailable: this machine cannot run Apache Kafka.
var ErrUnavailable = errUnavailable

// Launch starts brokers for a program that is no test.
func Launch(c Config) (*Cluster, error) { return start(c) }

// Close ends brokers of Launch, and removes their data.
func (k *Cluster) Close() { k.close() }
