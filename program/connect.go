package program

import (
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/internal/conftag"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/nats-io/nats.go/jetstream"
)

// defaultPort is where the embedded server listens unless told otherwise, and where produce looks for one.
const defaultPort = 4222

func embeddedURL(e config.Embedded) string {
	port := e.Port
	if port == 0 {
		port = defaultPort
	}
	return "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// natsSource turns the configuration's words into the adapter's.
func natsSource(n *config.NATS, e config.Embedded) natsbroker.Config {
	cfg := natsbroker.Config{
		Connection: natsbroker.Connection{
			URLs: n.Servers(), User: n.User, Password: n.Password, Token: n.Token,
			NKeySeedFile: n.NKeySeedFile, CredsFile: n.CredsFile, PlaintextAuth: n.PlaintextAuth,
		},
		Stream: n.Stream, Consumer: n.Durable, Domain: n.Domain, Subjects: n.Subjects, Deliver: delivers[n.Deliver],
		AckWait: n.AckWait, MaxAckPending: n.MaxAckPending, MaxHold: n.MaxHold, RevokeWait: n.RevokeWait, Missing: n.Missing, Recreate: n.Recreate, KeyHeader: n.KeyHeader, KeyToken: n.KeyToken,
	}
	if t := n.TLS; t != nil {
		cfg.TLS = natsbroker.TLS{Enabled: true, CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName, HandshakeFirst: t.HandshakeFirst}
	}
	if n.Embedded() {
		cfg.URLs = []string{embeddedURL(e)}
	}
	if n.CreateStream && !n.Embedded() {
		cfg.CreateStream = &jetstream.StreamConfig{Subjects: n.Subjects}
	}
	return cfg
}

var delivers = map[string]jetstream.DeliverPolicy{
	"": jetstream.DeliverAllPolicy, "all": jetstream.DeliverAllPolicy, "new": jetstream.DeliverNewPolicy,
	"last": jetstream.DeliverLastPolicy, "last_per_subject": jetstream.DeliverLastPerSubjectPolicy,
}

func kafkaConnection(k *config.Kafka) kafkabroker.Connection {
	c := kafkabroker.Connection{Brokers: k.Brokers, ClientID: k.ClientID}
	if t := k.TLS; t != nil {
		c.TLS = kafkabroker.TLS{Enabled: true, CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName}
	}
	if s := k.SASL; s != nil {
		c.SASL = kafkabroker.SASL{Mechanism: s.Mechanism, User: s.User, Password: s.Password, PlaintextAuth: s.PlaintextAuth}
	}
	return c
}

// kafkaSource turns the configuration's words into the adapter's.
func kafkaSource(k *config.Kafka) kafkabroker.Config {
	cfg := kafkabroker.Config{
		Connection: kafkaConnection(k), Group: k.Group, Topics: k.Topics, Pattern: k.TopicsPattern, Missing: k.Missing,
		Start: kafkabroker.Start{At: k.Start}, OutOfRange: k.OutOfRange, Balancer: k.Balancer, InstanceID: k.InstanceID,
		SessionTimeout: k.SessionTimeout, HeartbeatInterval: k.HeartbeatInterval, RevokeWait: k.RevokeWait, RebalanceTimeout: k.RebalanceTimeout,
		CommitInterval: k.CommitInterval, CommitMessages: k.CommitMessages, CrashLimit: k.CrashLimit,
		Uncommitted: k.Isolation == "read_uncommitted", Rack: k.Rack, SkipUndecodable: k.OnBadBatch == "skip", MaxBatchBytes: k.MaxBatchBytes,
	}
	if at, ok := k.StartTime(); ok {
		cfg.Start = kafkabroker.Start{At: "time", Time: at}
	}
	return cfg
}

// elsewhere are fields of Configs that the file says in another way, by what it has for them. All others have tags.
var elsewhere = map[broker.Field]string{
	"TLS.Enabled": "tls: {}", "Deliver": "deliver", "CreateStream.Name": "create_stream", "Strict": "priority.mode", "Priority": "priority",
	"Sources": "sources", "Retry.Topics": "retry.topics", "Listen": "listen", "Token": "token", "NoProgress": "no_progress",
}

// A naming says what the file calls a field.
type naming func(broker.Field) string

// namesOf are the file's names of a Config's fields. What the file does not have is called as in Go.
func namesOf(config any) naming {
	t := reflect.TypeOf(config)
	return func(f broker.Field) string {
		if name, ok := elsewhere[f]; ok {
			return name
		}
		if steps, ok := strings.CutPrefix(string(f), "Retry.Topics.Steps["); ok {
			return "retry.topics[" + strings.ToLower(steps)
		}
		if name, ok := conftag.Name(t, f); ok {
			return name
		}
		return string(f)
	}
}

var camelHump = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z]{2})`)

// snakeCase is what the file calls a field of a Config that nobody here knows.
func snakeCase(f broker.Field) string {
	return strings.ToLower(camelHump.ReplaceAllString(string(f), "${1}${3}_${2}${4}"))
}

// findAll adds what a package found in its Config to the document.
func findAll(d *config.Document, at string, name naming, err error) {
	if err != nil {
		d.FindOptions(at, asOptions(name, err))
	}
}

// asOptions is what a package found in its Config, in the file's words. What is of no field comes first: of the findings at a path
// and below it the document takes one.
func asOptions(name naming, err error) (list handlers.OptionErrors) {
	if f, ok := err.(*broker.Finding); ok { //nolint:errorlint // it, and not what it speaks of
		return handlers.OptionErrors{{Path: name(f.Field), Problem: f.Problem(name)}}
	}
	switch below := err.(type) { //nolint:errorlint // each is looked into
	case interface{ Unwrap() []error }:
		for _, one := range below.Unwrap() {
			list = append(list, asOptions(name, one)...)
		}
		slices.SortStableFunc(list, func(a, b *handlers.OptionError) int { return min(1, len(a.Path)) - min(1, len(b.Path)) })
		return list
	case interface{ Unwrap() error }:
		if broker.FindingsOf(err) != nil {
			return asOptions(name, below.Unwrap())
		}
	}
	return handlers.OptionErrors{{Problem: err.Error()}}
}
