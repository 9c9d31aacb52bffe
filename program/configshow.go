package program

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/consumer/tracing"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/spf13/cobra"
)

func newConfigShow(p Parts) *cobra.Command {
	var file func([]string) string
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Show a configuration file as it is understood, with its defaults and without secrets",
		Long: "Reads a configuration file as run does, with the environment of this process, and prints what it comes to: variables " +
			"are filled in, and\n" +
			"what the file does not say has its default, or is left out where that is none, or off. Secrets are ***, and so are logins " +
			"and paths of\n" +
			"URLs, and those options under with that may be secrets. The first line has the file's hash: that of started in the log " +
			"is the same\n" +
			"where the file has not changed since. FILE may be - for standard input.",
		Example: "  longshore config show c.yaml\n  kubectl exec POD -- /longshore config show /etc/longshore/config.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := assembleNamed(cmd, file(args), p)
			if err != nil {
				return usageError{err}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "# %s, config %s\n", a.doc.Name, a.doc.Digest)
			return a.doc.Show(cmd.OutOrStdout(), a.withDefaults())
		},
	}
	file = fileOf(cmd)
	return cmd
}

// withDefaults is the file with what it does not say.
func (a *assembly) withDefaults() *config.File {
	f := a.doc.File
	f.Log.Level, f.Log.Format = cmp.Or(f.Log.Level, "info"), cmp.Or(f.Log.Format, "auto")
	f.KillGrace = cmp.Or(f.KillGrace, config.DefaultKillGrace)
	if f.Admin != nil {
		c := *f.Admin
		c.Listen, c.NoProgress = cmp.Or(c.Listen, admin.DefaultListen), cmp.Or(c.NoProgress, admin.DefaultNoProgress)
		c.UI.Serve, c.UI.Payloads = cmp.Or(c.UI.Serve, "auto"), c.UI.Payloads || !a.doc.Has("admin.ui.payloads")
		f.Admin = &c
	}
	if f.Tracing != nil {
		c := *f.Tracing
		c.Relation = cmp.Or(c.Relation, string(tracing.Link))
		if !a.doc.Has("tracing.sample") && a.sends.sampling == (sampling{}) { // else a variable says it
			c.Sample = tracing.DefaultSample
		}
		f.Tracing = &c
	}
	if a.embeds {
		f.Embedded.Dir, f.Embedded.Port = cmp.Or(f.Embedded.Dir, defaultDir), cmp.Or(f.Embedded.Port, defaultPort)
	}
	f.Consumers = maps.Clone(f.Consumers)
	for _, m := range a.members {
		f.Consumers[m.name] = a.consumerDefaults("consumers."+m.name, f.Consumers[m.name], m)
	}
	return &f
}

// consumerDefaults is a consumer's section with what the engine, and what its brokers' adapters, have for what it does not say.
func (a *assembly) consumerDefaults(at string, from *config.Consumer, m *member) *config.Consumer {
	c := *from
	e := c.Engine().WithDefaults()
	c.Config, c.Pool.Pool, c.Retry.Retry, c.DrainTimeout = e, e.Pool, e.Retry, m.drain
	c.Pool.IdleTimeout, c.Pool.Policy = cmp.Or(c.Pool.IdleTimeout, time.Second), cmp.Or(c.Pool.Policy, "report-status")
	if a.doc.Has(at + ".retry.backoff.jitter") {
		c.Retry.Backoff.Jitter = from.Retry.Backoff.Jitter
	}
	if e.Order == consumer.OrderNone {
		c.Lane = consumer.Lane{} // nothing waits in one
	}
	if c.DeadLetter == nil {
		c.Retry.MaxAttempts = from.Retry.MaxAttempts // nothing is given up
	}
	if c.Pool.Policy == "fixed" {
		c.Pool.Min = from.Pool.Min // there are always max
	}
	if c.Timeout == 0 {
		c.StuckAfter, c.MaxStuck = from.StuckAfter, from.MaxStuck // nothing is stuck without it
	}
	if c.Batch != nil {
		b := *c.Batch
		b.Batch = *e.Batch
		c.Batch = &b
	} else {
		c.NoRoute = cmp.Or(c.NoRoute, string(handlers.NoRouteDeadLetter))
	}
	if c.Priority != nil {
		p := *c.Priority
		p.Mode = cmp.Or(p.Mode, "weight")
		c.Priority = &p
	}
	if len(c.Sources) == 0 {
		c.Source = sourceDefaults(c.Source, c.Order)
		return &c
	}
	c.Source, c.Sources = config.Source{}, nil
	for _, in := range from.Sources {
		s := sourceDefaults(config.Source{NATS: in.NATS, NATSCore: in.NATSCore, Kafka: in.Kafka, Other: in.Other}, c.Order)
		in.NATS, in.NATSCore, in.Kafka = s.NATS, s.NATSCore, s.Kafka
		c.Sources = append(c.Sources, in)
	}
	return &c
}

// sourceDefaults leaves out those of what does nothing beside the rest, which a file may not have.
func sourceDefaults(s config.Source, order consumer.Order) config.Source {
	if s.NATS != nil {
		n := *s.NATS
		n.Config = n.Config.WithDefaults()
		if order == consumer.OrderNone {
			n.RevokeWait = s.NATS.RevokeWait
		}
		if n.StartSequence == 0 && n.StartTime.IsZero() && !n.Bind {
			n.Deliver = cmp.Or(n.Deliver, "all")
		}
		n.URLs = s.NATS.URLs // or the embedded server
		n.Connection = linkDefaults(n.Connection)
		if n.KeyToken == 0 {
			n.KeyHeader = cmp.Or(n.KeyHeader, broker.HeaderKey)
		}
		s.NATS = &n
	}
	if s.NATSCore != nil {
		n := *s.NATSCore
		n.Connection = linkDefaults(n.Connection)
		s.NATSCore = &n
	}
	if s.Kafka != nil {
		k := *s.Kafka
		k.Config = k.Config.WithDefaults()
		k.Isolation, k.OnBadBatch = cmp.Or(k.Isolation, "read_committed"), cmp.Or(k.OnBadBatch, "stop")
		k.MaxPublishBytes, k.Partitioner = cmp.Or(k.MaxPublishBytes, k.MaxOutputBytes), cmp.Or(k.Partitioner, "murmur2")
		if k.Membership == "consumer" {
			k.SessionTimeout = s.Kafka.SessionTimeout // the broker says it
		}
		if !k.Transactional {
			k.TransactionTimeout, k.Compression = 0, ""
		}
		s.Kafka = &k
	}
	return s
}

// linkDefaults has the prefix that nats.go has; the embedded server is reached in the process.
func linkDefaults(c natsbroker.Connection) natsbroker.Connection {
	if len(c.URLs) > 0 {
		c.InboxPrefix = cmp.Or(c.InboxPrefix, "_INBOX")
	}
	return c
}
