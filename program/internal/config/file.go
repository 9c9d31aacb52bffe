package config

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// File is the configuration file. What the file does not say has its zero value here; the packages that take it have their
// defaults.
type File struct {
	Log       Log                  `yaml:"log"`
	Admin     *Admin               `yaml:"admin"`
	Embedded  Embedded             `yaml:"embedded"`
	KillGrace time.Duration        `yaml:"kill_grace"`
	Consumers map[string]*Consumer `yaml:"consumers"`
}

// Log says what is logged, and how.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// Admin is the admin server.
type Admin struct {
	Listen     string        `yaml:"listen"`
	Token      broker.Secret `yaml:"token"`
	TokenFile  string        `yaml:"token_file"`
	NoProgress time.Duration `yaml:"no_progress"`
}

// Embedded is the JetStream server inside the process, for consumers without a url.
type Embedded struct {
	Dir  string `yaml:"dir"`
	Port int    `yaml:"port"`
}

// Consumer is one consumer.
type Consumer struct {
	Source          Source        `yaml:"source"` // the first of Sources, where these are set
	Sources         []Input       `yaml:"sources"`
	Priority        *Priority     `yaml:"priority"`
	Order           string        `yaml:"order"`
	Lane            Lane          `yaml:"lane"`
	Pool            Pool          `yaml:"pool"`
	Retry           Retry         `yaml:"retry"`
	DeadLetter      *DeadLetter   `yaml:"dead_letter"`
	Routes          []Route       `yaml:"routes"`
	Batch           *Batch        `yaml:"batch"`
	NoRoute         string        `yaml:"no_route"`
	Middleware      []Middleware  `yaml:"middleware"`
	Timeout         time.Duration `yaml:"timeout"`
	StuckAfter      time.Duration `yaml:"stuck_after"`
	MaxStuck        int           `yaml:"max_stuck"`
	DrainTimeout    time.Duration `yaml:"drain_timeout"`
	OpenTimeout     time.Duration `yaml:"open_timeout"`
	Budget          Budget        `yaml:"budget"`
	MaxMessageBytes int           `yaml:"max_message_bytes"`
	MaxHeaderBytes  int           `yaml:"max_header_bytes"`
}

// Source is where messages come from: one of its fields.
type Source struct {
	NATS  *NATS  `yaml:"nats"`
	Kafka *Kafka `yaml:"kafka"`
	Other *Other `yaml:"-"` // of an adapter from outside, under its own name
}

// Other is the section of an adapter from outside.
type Other struct {
	// Adapter is its name.
	Adapter string
	// With are its settings, which only the adapter understands.
	With With
}

// Input is one of several sources.
type Input struct {
	Weight int    `yaml:"weight"`
	NATS   *NATS  `yaml:"nats"`
	Kafka  *Kafka `yaml:"kafka"`
	Other  *Other `yaml:"-"`
}

// Priority says which messages go before others.
type Priority struct {
	Mode   string  `yaml:"mode"`
	Header string  `yaml:"header"`
	Levels []Level `yaml:"levels"`
}

// Level is one of the levels that a header tells apart.
type Level struct {
	Values []string `yaml:"values"`
	Weight int      `yaml:"weight"`
}

// NATS is a JetStream consumer.
type NATS struct {
	URL           string        `yaml:"url"`
	URLs          []string      `yaml:"urls"`
	Stream        string        `yaml:"stream"`
	Subjects      []string      `yaml:"subjects"`
	Durable       string        `yaml:"durable"`
	Domain        string        `yaml:"domain"`
	CreateStream  bool          `yaml:"create_stream"`
	Deliver       string        `yaml:"deliver"`
	AckWait       time.Duration `yaml:"ack_wait"`
	MaxAckPending int           `yaml:"max_ack_pending"`
	MaxHold       time.Duration `yaml:"max_hold"`
	RevokeWait    time.Duration `yaml:"revoke_wait"`
	Missing       string        `yaml:"missing"`
	Recreate      bool          `yaml:"recreate"`
	KeyHeader     string        `yaml:"key_header"`
	KeyToken      int           `yaml:"key_token"`

	User          string        `yaml:"user"`
	Password      broker.Secret `yaml:"password"`
	PasswordFile  string        `yaml:"password_file"`
	Token         broker.Secret `yaml:"token"`
	TokenFile     string        `yaml:"token_file"`
	NKeySeedFile  string        `yaml:"nkey_seed_file"`
	CredsFile     string        `yaml:"creds_file"`
	PlaintextAuth bool          `yaml:"plaintext_auth"`
	TLS           *TLS          `yaml:"tls"`
}

// Kafka is a member of a consumer group.
type Kafka struct {
	Brokers       []string `yaml:"brokers"`
	Topics        []string `yaml:"topics"`
	TopicsPattern string   `yaml:"topics_pattern"`
	Missing       string   `yaml:"missing"`
	Group         string   `yaml:"group"`
	ClientID      string   `yaml:"client_id"`
	InstanceID    string   `yaml:"instance_id"`
	Balancer      string   `yaml:"balancer"`
	// Start is earliest, latest, or a time as in RFC 3339.
	Start             string        `yaml:"start"`
	OutOfRange        string        `yaml:"out_of_range"`
	SessionTimeout    time.Duration `yaml:"session_timeout"`
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval"`
	RevokeWait        time.Duration `yaml:"revoke_wait"`
	RebalanceTimeout  time.Duration `yaml:"rebalance_timeout"`
	CommitInterval    time.Duration `yaml:"commit_interval"`
	CommitMessages    int           `yaml:"commit_messages"`
	CrashLimit        int           `yaml:"crash_limit"`
	Isolation         string        `yaml:"isolation"`
	Rack              string        `yaml:"rack"`
	OnBadBatch        string        `yaml:"on_bad_batch"`
	MaxBatchBytes     int           `yaml:"max_batch_bytes"`
	MaxPublishBytes   int           `yaml:"max_publish_bytes"`

	TLS  *KafkaTLS `yaml:"tls"`
	SASL *SASL     `yaml:"sasl"`
}

// KafkaTLS is how brokers are checked, and who we are to them.
type KafkaTLS struct {
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
}

// SASL is a login at Kafka by name and password.
type SASL struct {
	Mechanism     string        `yaml:"mechanism"`
	User          string        `yaml:"user"`
	Password      broker.Secret `yaml:"password"`
	PasswordFile  string        `yaml:"password_file"`
	PlaintextAuth bool          `yaml:"plaintext_auth"`
}

// TLS is how a NATS server is checked, and who we are to it.
type TLS struct {
	CAFile         string `yaml:"ca_file"`
	CertFile       string `yaml:"cert_file"`
	KeyFile        string `yaml:"key_file"`
	ServerName     string `yaml:"server_name"`
	HandshakeFirst bool   `yaml:"handshake_first"`
}

// Lane bounds what waits for its turn in an order.
type Lane struct {
	Limit int    `yaml:"limit"`
	Full  string `yaml:"full"`
}

// Pool sizes the workers.
type Pool struct {
	Min         int           `yaml:"min"`
	Max         int           `yaml:"max"`
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	Policy      string        `yaml:"policy"`
	Mind        []string      `yaml:"mind"`
}

// Retry says what becomes of a failed message.
type Retry struct {
	MaxAttempts int           `yaml:"max_attempts"`
	GiveUpAfter time.Duration `yaml:"give_up_after"`
	Backoff     Backoff       `yaml:"backoff"`
	Topics      []RetryTopic  `yaml:"topics"`
}

// RetryTopic is a topic of Kafka whose messages all wait for the same time.
type RetryTopic struct {
	Topic string        `yaml:"topic"`
	Delay time.Duration `yaml:"delay"`
}

// Backoff is the wait before the next attempt.
type Backoff struct {
	Initial time.Duration `yaml:"initial"`
	Max     time.Duration `yaml:"max"`
	Factor  float64       `yaml:"factor"`
	Jitter  float64       `yaml:"jitter"`
}

// DeadLetter says where messages go that are given up.
type DeadLetter struct {
	To          string        `yaml:"to"`
	Routes      []LetterRoute `yaml:"routes"`
	Create      bool          `yaml:"create"`
	Concurrency int           `yaml:"concurrency"`
	Headers     []string      `yaml:"headers"`
}

// LetterRoute leads some of the dead letters elsewhere.
type LetterRoute struct {
	Class   string `yaml:"class"`
	Handler string `yaml:"handler"`
	To      string `yaml:"to"`
}

// Route leads messages to a handler.
type Route struct {
	Match   string            `yaml:"match"`
	Type    string            `yaml:"type"`
	Headers map[string]string `yaml:"headers"`
	Handler string            `yaml:"handler"`
	With    With              `yaml:"with"`
	Codec   string            `yaml:"codec"`
	// Middleware is around this route's handler, inside the consumer's.
	Middleware []Middleware `yaml:"middleware"`
}

// Batch hands messages over several at a time, instead of routes.
type Batch struct {
	Handler string        `yaml:"handler"`
	With    With          `yaml:"with"`
	Codec   string        `yaml:"codec"`
	Size    int           `yaml:"size"`
	Bytes   int           `yaml:"bytes"`
	Linger  time.Duration `yaml:"linger"`
	ByKey   bool          `yaml:"by_key"`
}

// Middleware wraps the handler of a route, or all of a consumer; the first is the outermost.
type Middleware struct {
	Use string `yaml:"use"`
	// Name is of its limit on the admin address.
	Name string `yaml:"name"`
	With With   `yaml:"with"`
}

// Budget bounds what is between broker and ack.
type Budget struct {
	Messages int   `yaml:"messages"`
	Bytes    int64 `yaml:"bytes"`
}

// With are the options of a handler or middleware. They may hold secrets (a header, a URL), so printing and encoding show their
// names only.
type With map[string]any

// Format prints the names, whatever the verb.
func (w With) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, w.names()) }

// MarshalText is what JSON and YAML show.
func (w With) MarshalText() ([]byte, error) { return []byte(w.names()), nil }

func (w With) names() string {
	return "{" + strings.Join(slices.Sorted(maps.Keys(w)), ", ") + "}"
}
