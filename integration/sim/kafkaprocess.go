package sim

import (
	"math/rand/v2"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/integration/sim/memnet"
	"github.com/longshoremq/longshore/internal/dialer"
)

// A kafkaProcess is a process's sources and publishers on Kafka.
type kafkaProcess struct {
	sockets
	w    *kafkaWorld
	name string
}

// kafkaRequest is the processes' RequestTimeout.
const kafkaRequest = 2 * time.Second

// rebalanceTimeout is the processes'.
func (w *kafkaWorld) rebalanceTimeout() time.Duration {
	return 2*time.Duration(w.schedule.Settings.RevokeWait) + time.Duration(w.schedule.Settings.Lease)
}

func (p *kafkaProcess) connection() kafkabroker.Connection {
	c := kafkabroker.Connection{
		Brokers: p.w.addresses(), ClientID: p.name, DialTimeout: time.Second, RequestTimeout: kafkaRequest,
	}
	dialer.Use(&c, p.host.Dial)
	return c
}

// Source implements Process.
func (p *kafkaProcess) Source(s Subscription) (broker.Source, error) {
	p.w.mu.Lock()
	p.w.groups[s.Group] = s.Topics
	p.w.mu.Unlock()
	settings, dice := p.w.schedule.Settings, rand.New(rand.NewPCG(p.w.schedule.Seed, 13)) // the same for all processes
	cfg := kafkabroker.Config{
		Connection: p.connection(), Group: s.Group, Topics: s.Topics,
		SessionTimeout: time.Duration(settings.Lease), HeartbeatInterval: time.Duration(settings.Lease) / 10,
		RevokeWait: time.Duration(settings.RevokeWait), RebalanceTimeout: p.w.rebalanceTimeout(),
		CommitInterval: settleWithin / 2, CrashLimit: settings.CrashLimit,
		Transactional: settings.Emits > 0, TransactionTimeout: time.Duration(settings.Lease),
		Balancer: oneOf(dice, []string{"sticky", "sticky", "sticky", "range", "roundrobin"}),
	}
	if dice.IntN(5) == 0 {
		cfg.InstanceID = p.name
	}
	if settings.Assigned {
		p.assigned(&cfg)
	}
	return kafkabroker.NewSource(cfg)
}

// assigned lets the brokers assign the group's partitions.
func (p *kafkaProcess) assigned(cfg *kafkabroker.Config) {
	cfg.Membership = "consumer"
	if cfg.Balancer == "roundrobin" { // which they do not have
		cfg.Balancer = "sticky"
	}
	p.w.brokers().SetGroupConfigs(cfg.Group, map[string]string{groupSession: p.w.session()})
}

// Publisher implements Process.
func (p *kafkaProcess) Publisher() (broker.Publisher, error) {
	return kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: p.connection()})
}

// Close implements Process.
func (p *kafkaProcess) Close() { p.host.Kill() }

func (p *kafkaProcess) do(f Fault) (undo func(), err error) {
	if f.What == CutNode {
		as := p.w.addresses()
		return p.cut(f, memnet.Both, as[f.N%len(as)]), nil
	}
	return p.sockets.do(f)
}
