package kafkabroker

import (
	"net"
	"strconv"

	"github.com/longshoremq/longshore/broker"
)

var _ broker.Describer = (*Source)(nil)

// Describe implements broker.Describer.
func (s *Source) Describe() broker.Description {
	d := broker.Description{System: "kafka", Group: s.cfg.Group}
	if host, port, err := net.SplitHostPort(s.cfg.Brokers[0]); err == nil {
		d.Server = host
		d.Port, _ = strconv.Atoi(port)
	}
	return d
}
