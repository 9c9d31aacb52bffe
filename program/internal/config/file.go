package config

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
)

// File is the configuration file. What the file does not say has its zero value here; the packages that take it have their
// defaults.
type File struct {
	Log       Log                  `yaml:"log"`
	Admin     *Admin               `yaml:"admin"`
	Tracing   *Tracing             `yaml:"tracing"`
	Metrics   Metrics              `yaml:"metrics"`
	Embedded  Embedded             `yaml:"embedded"`
	KillGrace time.Duration        `yaml:"kill_grace" want:">0"`
	Consumers map[string]*Consumer `yaml:"consumers"`
}

// Log says what is logged, and how.
type Log struct {
	Level  string `yaml:"level" want:"trace|debug|info|warn|error"`
	Format string `yaml:"format" want:"auto|json|console"`
}

// Admin is the admin server.
type Admin struct {
	Listen     string        `yaml:"listen" want:"some"`
	Token      broker.Secret `yaml:"token"`
	TokenFile  string        `yaml:"token_file" want:"some"`
	NoProgress time.Duration `yaml:"no_progress" want:">0"`
	UI         UI            `yaml:"ui"`
}

// UI is the web page of the admin server.
type UI struct {
	// Serve: auto is where the admin address is on loopback.
	Serve string `yaml:"serve" want:"auto|always|never"`
	// Payloads of dead letters, and keys, are shown after the login; true unless the file says otherwise.
	Payloads bool `yaml:"payloads"`
}

// Serves says whether there is the page.
func (a *Admin) Serves() bool {
	switch a.UI.Serve {
	case "always":
		return true
	case "never":
		return false
	}
	host, _, err := net.SplitHostPort(cmp.Or(a.Listen, "127.0.0.1:0"))
	if err != nil {
		return false // was found
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// Tracing says where spans go, and of which messages. Program makes the exporter.
type Tracing struct {
	Endpoint      string                   `yaml:"endpoint" want:"some"`
	Headers       map[string]broker.Secret `yaml:"headers"`
	PlaintextAuth bool                     `yaml:"plaintext_auth"` // headers go without TLS to another host, a variable's too
	Sample        float64                  `yaml:"sample" want:"0..1"`
	Relation      string                   `yaml:"relation" want:"link|parent"`
	Keys          bool                     `yaml:"keys"`
	Resource      map[string]string        `yaml:"resource"`
}

// Metrics says where metrics go beside /metrics.
type Metrics struct {
	OTLP bool `yaml:"otlp"`
}

// Embedded is the JetStream server inside the process, for consumers without a url.
type Embedded struct {
	Dir  string `yaml:"dir" want:"some"`
	Port int    `yaml:"port" want:"1..65535"`
}

// Consumer is one consumer: what the engine's Config has, and what only the file says, or says in another way. Engine makes one
// of both.
type Consumer struct {
	consumer.Config `yaml:",inline" json:"-"`

	Source   Source    `yaml:"source"` // the first of Sources, where these are set
	Sources  []Input   `yaml:"sources"`
	Priority *Priority `yaml:"priority"`
	Pool     Pool      `yaml:"pool"`
	Retry    Retry     `yaml:"retry"`
	Routes   []Route   `yaml:"routes"`
	Batch    *Batch    `yaml:"batch"`
	NoRoute  string    `yaml:"no_route"`
	// DrainTimeout is what kill_grace leaves, unless it is set; 0 is not at all.
	DrainTimeout time.Duration `yaml:"drain_timeout" want:"0.."`
	Middleware   []Middleware  `yaml:"middleware"`
}

// Source is where messages come from: one of its fields.
type Source struct {
	NATS     *NATS     `yaml:"nats"`
	NATSCore *NATSCore `yaml:"nats_core"`
	Kafka    *Kafka    `yaml:"kafka"`
	Other    *Other    `yaml:"-"` // of an adapter from outside, under its own name
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
	Weight   int       `yaml:"weight" want:"1..1000"`
	NATS     *NATS     `yaml:"nats"`
	NATSCore *NATSCore `yaml:"nats_core"`
	Kafka    *Kafka    `yaml:"kafka"`
	Other    *Other    `yaml:"-"`
}

// Priority says which messages go before others.
type Priority struct {
	Mode   string  `yaml:"mode" want:"weight|strict"`
	Header string  `yaml:"header"`
	Levels []Level `yaml:"levels"`
}

// Level is one of the levels that a header tells apart.
type Level struct {
	Values []string `yaml:"values"`
	Weight int      `yaml:"weight" want:"1..1000"`
}

// NATS is a JetStream consumer. Adapter makes the adapter's Config of it.
type NATS struct {
	natsbroker.Config `yaml:",inline"`
	NATSAccess        `yaml:",inline"`

	CreateStream bool   `yaml:"create_stream"`
	Deliver      string `yaml:"deliver" want:"all|new|last|last_per_subject"`
}

// NATSCore is a queue group on plain subjects, without JetStream. Adapter makes the adapter's Config of it.
type NATSCore struct {
	natsbroker.CoreConfig `yaml:",inline"`
	NATSAccess            `yaml:",inline"`
}

// NATSAccess is how the file says in its own way where a NATS server is, and who we are to it.
type NATSAccess struct {
	URL          string `yaml:"url" want:"some"`
	PasswordFile string `yaml:"password_file" want:"some"`
	TokenFile    string `yaml:"token_file" want:"some"`
}

// Kafka is a member of a consumer group. Adapter makes the adapter's Config of it.
type Kafka struct {
	kafkabroker.Config `yaml:",inline"`

	Isolation       string `yaml:"isolation" want:"read_committed|read_uncommitted"`
	OnBadBatch      string `yaml:"on_bad_batch" want:"stop|skip"`
	MaxPublishBytes int    `yaml:"max_publish_bytes" want:"1..1073741823"`
	SASL            *SASL  `yaml:"sasl"`
}

// SASL is a login at Kafka by name and password.
type SASL struct {
	kafkabroker.SASL `yaml:",inline"`
	PasswordFile     string `yaml:"password_file" want:"some"`
}

// Pool sizes the workers.
type Pool struct {
	consumer.Pool `yaml:",inline" json:"-"`
	Policy        string   `yaml:"policy" want:"report-status|fixed|classic|queue-threshold|aimd"`
	Mind          []string `yaml:"mind" want:"cpu|memory"`
}

// Retry says what becomes of a failed message.
type Retry struct {
	consumer.Retry `yaml:",inline" json:"-"`
	// Topics are of Kafka; the messages of each all wait for the same time.
	Topics []consumer.RetryStep `yaml:"topics"`
}

// Route leads messages to a handler.
type Route struct {
	Match   string            `yaml:"match" want:"some"`
	Type    string            `yaml:"type" want:"some"`
	Headers map[string]string `yaml:"headers"`
	Handler string            `yaml:"handler"`
	With    With              `yaml:"with"`
	Codec   string            `yaml:"codec"`
	// Middleware is around this route's handler, inside the consumer's.
	Middleware []Middleware `yaml:"middleware"`
}

// Batch hands messages over several at a time, instead of routes.
type Batch struct {
	consumer.Batch `yaml:",inline" json:"-"`
	Handler        string `yaml:"handler"`
	With           With   `yaml:"with"`
	Codec          string `yaml:"codec"`
}

// Middleware wraps the handler of a route, or all of a consumer; the first is the outermost.
type Middleware struct {
	Use string `yaml:"use"`
	// Name is of its limit on the admin address.
	Name string `yaml:"name" want:"some"`
	With With   `yaml:"with"`
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
