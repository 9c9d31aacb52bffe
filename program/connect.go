package program

import (
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/handlers"
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

// otherNames are the adapters' fields whose names in the file are not just the same in snake case.
var otherNames = map[string]string{
	"URLs": "urls", "Consumer": "durable", "NKeySeedFile": "nkey_seed_file", "TLS": "tls", "CAFile": "ca_file",
	"Pattern": "topics_pattern", "SASL": "sasl", "Strict": "priority.mode",
}

var (
	fieldName = regexp.MustCompile(`\b[A-Z][A-Za-z]+\b`)
	camelHump = regexp.MustCompile(`([a-z])([A-Z])`)
)

// findAll adds what a package found in its Config to the document.
func findAll(d *config.Document, at, prefix string, err error) {
	if err != nil {
		d.FindOptions(at, asOptions(prefix, err))
	}
}

// asOptions is what a package found in its Config, in the file's words: "natsbroker: AckWait is 1ms: …" is about ack_wait, and
// says "is 1ms: …".
func asOptions(prefix string, err error) handlers.OptionErrors {
	var list handlers.OptionErrors
	for text := range strings.Lines(err.Error()) {
		text = strings.TrimPrefix(strings.TrimSpace(text), prefix)
		field, problem, _ := strings.Cut(fieldName.ReplaceAllStringFunc(text, fileWord), " ")
		if rest, ok := strings.CutSuffix(strings.TrimRight(field, ",:"), ".topic"); ok && strings.HasPrefix(rest, "dead_letter") {
			field = rest + ".to"
		}
		list = append(list, &handlers.OptionError{Path: strings.TrimRight(field, ",:"), Problem: problem})
	}
	return list
}

// fileWord is a field's name as it is in the file. Words that are no field stay.
func fileWord(name string) string {
	if word, ok := otherNames[name]; ok {
		return word
	}
	if strings.ToUpper(name) == name { // an abbreviation
		return name
	}
	return strings.ToLower(camelHump.ReplaceAllString(name, "${1}_${2}"))
}
