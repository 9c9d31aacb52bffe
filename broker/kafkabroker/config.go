package kafkabroker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/conftag"
	"github.com/longshoremq/longshore/internal/dialer"
	"github.com/longshoremq/longshore/internal/plaintext"
)

// A Connection says where the brokers are and who we are.
type Connection struct {
	// Brokers are host:port of some brokers; the others are learned from them. Defaults to 127.0.0.1:9092.
	Brokers []string `yaml:"brokers"`
	// ClientID is what brokers show for this process. Defaults to "longshore".
	ClientID string `yaml:"client_id" want:"some"`
	// TLS settings. The zero value connects without TLS.
	TLS TLS `yaml:"tls"`
	// SASL logs in. The zero value does not.
	SASL SASL `yaml:"-"`
	// DialTimeout bounds connecting, TLS and login together. Defaults to 5 s.
	DialTimeout time.Duration `yaml:"-" want:"1ms..ms32"`
	// RequestTimeout bounds one exchange with a broker; of a fetch, for how long less than 64 KiB of its answer arrive. Defaults to
	// 10 s.
	RequestTimeout time.Duration `yaml:"-" want:"1ms..ms32"`

	// dial is a test's; see package internal/dialer.
	dial dialer.Func
}

// TLS is how brokers are checked and who we are to them. The least version is TLS 1.2.
type TLS struct {
	// Enabled demands TLS. It is implied by the other fields. Defaults to false.
	Enabled bool `yaml:"-"`
	// CAFile is a PEM file of certificate authorities. It is read again at each connect, so it can be renewed. Defaults to the
	// system's.
	CAFile string `yaml:"ca_file" want:"some"`
	// CertFile and KeyFile are our certificate, for mutual TLS. They are read again at each connect, so they can be renewed.
	CertFile string `yaml:"cert_file" want:"some"`
	KeyFile  string `yaml:"key_file" want:"some"`
	// ServerName is the name that the brokers' certificates must carry. Defaults to the host of each.
	ServerName string `yaml:"server_name" want:"some"`
}

func (t TLS) wanted() bool {
	return t.Enabled || t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.ServerName != ""
}

// SASL is a login by name and password.
type SASL struct {
	// Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Defaults to none.
	Mechanism string `yaml:"mechanism" want:"PLAIN|SCRAM-SHA-256|SCRAM-SHA-512"`
	User      string `yaml:"user"`
	// Password of broker.SecretFile is read again at each login, so it can be replaced: a login that is refused is tried again
	// then, by a source, for as long as it takes, and for 2 s in its Open. Any other one ends it.
	Password broker.Secret `yaml:"password"`
	// PlaintextAuth allows a login without TLS to a host that is not this machine: PLAIN shows the password to who reads it there,
	// SCRAM lets them try passwords offline, and both let who stands between act in our name. Set it only on a network that you
	// trust. Defaults to false.
	PlaintextAuth bool `yaml:"plaintext_auth"`
}

// Start is where a partition begins that has no committed offset. Where this says latest or none, one that is added after the
// group has begun to read its topic, or made while a process waits for the topic, begins at its beginning nevertheless. A
// topic that is new to a Pattern does not.
type Start struct {
	// At is "earliest", "latest", "time", or "none": Receive returns an error instead, so that a slip in Group is no new group.
	At string `yaml:"-" want:"earliest|latest|time|none"`
	// Time goes with "time": the first message at or after it. Not before 1970.
	Time time.Time `yaml:"-"`
}

// MarshalText is what UnmarshalText reads.
func (s Start) MarshalText() ([]byte, error) {
	if s.At == "time" {
		return s.Time.AppendFormat(nil, time.RFC3339Nano), nil
	}
	return []byte(s.At), nil
}

// UnmarshalText reads "earliest", "latest", "none", or a time as in RFC 3339.
func (s *Start) UnmarshalText(text []byte) error {
	word := string(text)
	at, err := time.Parse(time.RFC3339, word)
	switch {
	case word == "earliest" || word == "latest" || word == "none":
		*s = Start{At: word}
	case err != nil:
		return fmt.Errorf("is %q, want earliest, latest, none, or a time such as 2026-11-21T15:04:05Z", word)
	default:
		*s = Start{At: "time", Time: at}
	}
	return nil
}

// Config is a Kafka source: a member of a consumer group. The tags are the keys of the program's file, and what may be set.
type Config struct {
	Connection `yaml:",inline"`

	// Group is the consumer group. Processes with the same one share its messages. Required.
	Group string `yaml:"group"`
	// Topics to consume. Topics or Pattern is required.
	Topics []string `yaml:"topics" want:"some"`
	// Pattern consumes all topics whose whole name it matches (RE2), also those that are made later; internal ones (with two leading
	// underscores) never. Defaults to none.
	Pattern string `yaml:"topics_pattern" want:"some"`
	// Missing is what Open does where one of Topics does not exist, or Pattern matches none. "wait" warns of it and consumes the
	// others; where none of Topics exists, Open waits for one and joins no group before. "run" does not wait even then, which is for
	// a source that others stand beside: a consumer of several begins when one of them has something (broker.MissingReporter).
	// "stop" is an error. With wait and run a topic is consumed from when it is there, and for a Pattern they are the same.
	// Defaults to wait.
	Missing string `yaml:"missing" want:"wait|run|stop"`
	// Start is where a partition without a committed offset begins. The position is committed at once, and a Notice says so, one for
	// each topic. Defaults to earliest.
	Start Start `yaml:"start"`
	// OutOfRange is what to do when the log does not have our position any more. Where retention has passed it, "earliest" and
	// "latest" both go on at the first message that is left, and a Gap event has the number of those that nobody handled. Where it
	// was cut off below it (an unclean election, a power cut; Kafka 3.1), both go on where it was, with a Gap event. Where it is
	// beyond the log's end for another reason (offsets were set by hand), "earliest" begins at the log's first message, so that
	// messages come again, and "latest" at its end, with a Gap event. "stop" ends Receive with an error in all cases. Defaults to
	// earliest.
	OutOfRange string `yaml:"out_of_range" want:"earliest|latest|stop"`

	// Membership is how the group shares its partitions out. "consumer": the broker assigns them one by one, and only those that
	// move stop (KIP-848, Kafka 4.0; made for 4.3 and newer). After how long a silence a process is taken for dead is the broker's
	// to say there: 45 s by default, and SessionTimeout does not count. "classic": the group's members share them out (Kafka 2.3).
	// "auto" takes consumer where the broker checks commits by the epoch of each partition (4.3) and the group has no classic
	// members, and tells which it took in an event. Defaults to classic.
	Membership string `yaml:"membership" want:"auto|consumer|classic"`
	// MemberID is a name of this process for the consumer protocol: one that starts with it again has its partitions at once, also
	// after a crash. No two processes may ever have it at a time: none of them would notice. Defaults to a random one.
	MemberID string `yaml:"member_id" want:"some"`
	// Balancer is "sticky" (cooperative: only partitions that move stop), "range" or "roundrobin" (eager: all stop at each
	// rebalance; for taking over a running group of other clients). With the consumer protocol sticky is the broker's assignor
	// uniform, range is its own, and there is no roundrobin. Defaults to sticky.
	Balancer string `yaml:"balancer" want:"sticky|range|roundrobin"`
	// InstanceID is a static name of this process: after a restart within the session timeout it gets its partitions back and nobody
	// else's move. It must be unique in the group. Defaults to none.
	InstanceID string `yaml:"instance_id" want:"some"`
	// SessionTimeout is after how long a silence the broker gives our partitions to others: what a crash costs. Defaults to 10 s.
	SessionTimeout time.Duration `yaml:"session_timeout" want:"1ms..ms32"`
	// HeartbeatInterval is how often we tell that we live, and so how soon we learn of a rebalance. At most a third of
	// SessionTimeout. Defaults to 1 s.
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval" want:"1ms..ms32"`
	// RevokeWait is how long running handlers may go on when a partition is revoked. Defaults to 15 s.
	RevokeWait time.Duration `yaml:"revoke_wait" want:"1ms..ms32"`
	// RebalanceTimeout is how long the group waits for a member that has partitions to give up. It must exceed RevokeWait. Defaults
	// to 60 s.
	RebalanceTimeout time.Duration `yaml:"rebalance_timeout" want:"1ms..ms32"`

	// CommitInterval is how long progress may wait before it is committed, when it is little. Defaults to 1 s.
	CommitInterval time.Duration `yaml:"commit_interval" want:"1ms..ms32"`
	// CommitMessages is from how many finished messages on progress is committed at once, all partitions in one request. With
	// CommitInterval it bounds what a crash does again, beside what handlers are at. It holds up to 50 commits a second (fewer where
	// their metadata is large); above that it is what is finished in 20 ms. Raise it where many processes share a coordinator that
	// is busy. Defaults to 8.
	CommitMessages int `yaml:"commit_messages" want:"1..1073741823"`
	// CrashLimit is how many processes in a row may crash or be killed while the same offset is unfinished, before what is
	// unfinished above it is run one message at a time, with nothing else of this source beside it. A message that was alone so when
	// the process ended again is handed out with Message.Crashes, and the engine dead-letters it without another run. Set it (to 3,
	// say) where a message may kill its process: os.Exit, a fault in C, memory. Defaults to 0: never, such messages are warned
	// about.
	CrashLimit int `yaml:"crash_limit" want:"1.."`
	// Transactional writes what handlers emit in transactions, with the progress of the messages that it was made of
	// (broker.Emitter): who reads only what is committed sees the outputs of each message once, whatever happens. All processes of
	// the group must have it, or those that have not may begin below what a transaction under way is about to commit. Kafka 2.5 or
	// newer is needed, and the rights to write, and to a transactional id that begins with the group's name and a dot. Defaults to
	// false.
	Transactional bool `yaml:"transactional"`
	// TransactionTimeout is after how long the broker aborts a transaction of a process that died: until then the outputs behind
	// it are seen by nobody, and whoever gets its partitions waits. It bounds a try, too. At most the broker's
	// transaction.max.timeout.ms. Defaults to 10 s.
	TransactionTimeout time.Duration `yaml:"transaction_timeout" want:"100ms..ms32"`
	// Compression is how what is emitted in transactions is written: "snappy", or "none", for readers that know no compression, or
	// where contents are compressed already. A batch that compression does not make shorter goes without, and so does all to a
	// topic whose broker refuses it. Defaults to snappy.
	Compression string `yaml:"compression" want:"none|snappy"`
	// MaxOutputBytes is the largest key, value and headers together that are emitted; larger ones are broker.ErrRefused. Keep it
	// below the max.message.bytes of the topics. Defaults to 1,000,000.
	MaxOutputBytes int `yaml:"-" want:"1..1073741823"`
	// Partitioner is how the key of what is emitted in transactions chooses its partition, dead letters and copies in retry topics
	// among it, as PublisherConfig.Partitioner; set both to the same, or a Warning tells that they differ. Defaults to murmur2.
	Partitioner string `yaml:"partitioner" want:"murmur2|fnv1a|fnv1a_reference|crc32|crc32_consistent"`
	// Poll is how often topics are looked at for new ones and new partitions while all goes well. While a topic or a leader is
	// missing it is every second, if Poll is not less; that a leader has moved, or a topic is another one, brokers tell. Defaults
	// to 5 s.
	Poll time.Duration `yaml:"-" want:"1ms..ms32"`
	// Uncommitted also hands out messages of transactions that are open or were aborted. Defaults to false: read_committed.
	Uncommitted bool `yaml:"-"`
	// FetchBytes bounds one fetch, within the budget; one batch may go over. Defaults to 4 MiB.
	FetchBytes int `yaml:"-" want:"1..1073741823"`
	// PartitionBytes bounds what one fetch brings of one partition, where it asks for so many that these share FetchBytes; fewer
	// share all of them. Defaults to 1 MiB.
	PartitionBytes int `yaml:"-" want:"1..1073741823"`
	// MaxWait is how long a broker may wait for something to send, and up to ten times that where nothing has come for a while. It
	// sends what comes at once. Defaults to 500 ms.
	MaxWait time.Duration `yaml:"-" want:"1ms..ms32"`
	// MaxBatchBytes bounds a decompressed batch; a larger one is undecodable. Defaults to 64 MiB.
	MaxBatchBytes int `yaml:"max_batch_bytes" want:"1..1073741823"`
	// SkipUndecodable skips a batch that cannot be decoded, with a Gap event. Defaults to false: Receive returns an error that names
	// it.
	SkipUndecodable bool `yaml:"-"`
	// Rack lets brokers name a replica in the same rack to fetch from. Defaults to none.
	Rack string `yaml:"rack" want:"some"`
	// Window bounds how many messages of a partition may be handed out or finished above its lowest unfinished one. Defaults to
	// 65,536.
	Window int `yaml:"-" want:"1..1073741823"`

	// plan changes a leader's plan; it is a test's.
	plan func(plan map[string][]partitionID) map[string][]partitionID
}

func or[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c Connection) withDefaults() Connection {
	if len(c.Brokers) == 0 {
		c.Brokers = []string{"127.0.0.1:9092"}
	}
	or(&c.ClientID, "longshore")
	or(&c.DialTimeout, 5*time.Second)
	or(&c.RequestTimeout, 10*time.Second)
	return c
}

// WithDefaults is c with the defaults of what it does not set, as NewSource has it.
func (c Config) WithDefaults() Config { return c.withDefaults() }

func (c Config) withDefaults() Config {
	c.Connection = c.Connection.withDefaults()
	or(&c.Start.At, "earliest")
	or(&c.OutOfRange, "earliest")
	or(&c.Missing, "wait")
	or(&c.Membership, "classic")
	or(&c.Balancer, "sticky")
	or(&c.SessionTimeout, 10*time.Second)
	or(&c.HeartbeatInterval, time.Second)
	or(&c.RevokeWait, 15*time.Second)
	or(&c.RebalanceTimeout, time.Minute)
	or(&c.CommitInterval, time.Second)
	or(&c.CommitMessages, 8)
	or(&c.TransactionTimeout, 10*time.Second)
	or(&c.Compression, "snappy")
	or(&c.MaxOutputBytes, 1_000_000)
	or(&c.Poll, 5*time.Second)
	or(&c.FetchBytes, 4<<20)
	or(&c.PartitionBytes, 1<<20)
	or(&c.MaxWait, 500*time.Millisecond)
	or(&c.MaxBatchBytes, 64<<20)
	or(&c.Window, 1<<16)
	return c
}

// transactionalID names the process to the brokers. A static member has the same one after a restart, which aborts at once what
// its predecessor left open; others leave that to the timeout. The last dot is that behind the group: else eu.1 of orders and 1
// of orders.eu were one, and would fence each other for ever.
func (c *Config) transactionalID() string {
	if c.InstanceID != "" {
		return c.Group + "." + withoutDots.Replace(c.InstanceID)
	}
	return fmt.Sprintf("%s.%016x", c.Group, rand.Uint64())
}

var withoutDots = strings.NewReplacer("%", "%25", ".", "%2E")

// otherTransactionalID is one that nobody had, and that the same rights hold for.
func (c *Config) otherTransactionalID() string {
	if c.InstanceID == "" {
		return c.transactionalID()
	}
	return fmt.Sprintf("%s.%016x", c.transactionalID(), rand.Uint64())
}

// resetTime is the time that ListOffsets takes for where to begin, why being what is wrong with the position; nil: there is none.
func (c *Config) resetTime(why error) int64 {
	switch {
	case errors.Is(why, errRecreated), errors.Is(why, errCutOff): // all of it is new; the log that was cut off is none of it
		return timeStart
	case errors.Is(why, errBeyond) && c.OutOfRange == "latest":
		return timeEnd
	case errors.Is(why, errBeyond):
		return timeStart
	case c.Start.At == "latest":
		return timeEnd
	case c.Start.At == "time":
		return c.Start.Time.UnixMilli()
	}
	return timeStart
}

// findings is an empty list of them.
func findings() *broker.Findings { return &broker.Findings{Of: "kafkabroker"} }

// wrong is one finding.
func wrong(at broker.Field, format string, args ...any) error {
	f := findings()
	f.Add(at, format, args...)
	return f.Err()
}

// brokersForm is how an address must look.
const brokersForm = "want host:port, as in 127.0.0.1:9092"

func (c Connection) validate(f *broker.Findings) {
	checkName(f, "ClientID", c.ClientID)
	for i, b := range c.Brokers {
		at := broker.Field(fmt.Sprintf("Brokers[%d]", i))
		if strings.Contains(b, "@") { // it is not shown
			f.Add(at, "has a user or a password in it: want host:port; they go into %v", broker.Field("SASL"))
			continue
		}
		host, port, err := net.SplitHostPort(b)
		n, perr := strconv.ParseUint(port, 10, 16)
		if err != nil || perr != nil || n == 0 || host == "" || strings.ContainsFunc(host, unicode.IsSpace) {
			f.Add(at, "is %q, %s", b, brokersForm)
			continue
		}
		f.Check(c.mayLogIn(host), at,
			"is %q: a login would go there without TLS; set %v, or %v", b, broker.Field("TLS.Enabled"), broker.Field("SASL.PlaintextAuth"))
	}
	f.Check(c.TLS.CertFile != "" || c.TLS.KeyFile == "", "TLS.KeyFile", "is set and %v is not", broker.Field("TLS.CertFile"))
	f.Check(c.TLS.KeyFile != "" || c.TLS.CertFile == "", "TLS.CertFile", "is set and %v is not", broker.Field("TLS.KeyFile"))
	if c.SASL.Mechanism != "" || c.SASL.User != "" || !c.SASL.Password.IsZero() {
		f.Check(c.SASL.Mechanism != "", "SASL.Mechanism", "is missing, want one of %v", mechanisms)
		f.Check(c.SASL.User != "", "SASL.User", "is missing")
		f.Check(!c.SASL.Password.IsZero(), "SASL.Password", "is missing")
	}
}

var mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

// mayLogIn says whether the login may be sent to a host.
func (c Connection) mayLogIn(host string) bool {
	return c.SASL.Mechanism == "" || c.TLS.wanted() || c.SASL.PlaintextAuth || !plaintext.Exposed(host)
}

// ValidTopic says whether Kafka takes a name for a topic's: of letters, digits, dots, underscores and dashes, up to 249.
func ValidTopic(name string) bool {
	if name == "" || len(name) > 249 || name == "." || name == ".." {
		return false
	}
	for i := range len(name) { // and no regexp: it is asked of each output
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// Validate reports all that is wrong at once, as *broker.Findings. NewSource does so, too. It connects to nothing.
func (c Config) Validate() error {
	f, set := findings(), c
	conftag.Check(f, c)
	c = c.withDefaults()
	c.Connection.validate(f)
	f.Check(c.Group != "", "Group", "is missing")
	checkName(f, "Group", c.Group)
	checkName(f, "InstanceID", c.InstanceID)
	checkName(f, "MemberID", c.MemberID)
	checkName(f, "Rack", c.Rack)
	f.Check(!c.Transactional || !c.Uncommitted, "Transactional",
		"is set, and so is %v: outputs would be made of messages that are taken back", broker.Field("Uncommitted"))
	c.validateTopics(f)
	f.Check((c.Start.At == "time") != c.Start.Time.IsZero(), "Start",
		"is %q at %v: want earliest, latest, none, or time with a time", c.Start.At, c.Start.Time)
	f.Check(c.Start.Time.IsZero() || c.Start.Time.UnixMilli() >= 0, "Start",
		"is %q, want a time from 1970 on", c.Start.Time.Format(time.RFC3339Nano)) // which ListOffsets takes for something else
	f.Check(c.Membership != "consumer" || assignors[c.Balancer] != "", "Balancer",
		"is %q, which the consumer protocol does not have", c.Balancer)
	f.Check(c.Membership != "classic" || c.MemberID == "", "MemberID", "is set, and %v is classic, which has none",
		broker.Field("Membership"))
	const late = "one late heartbeat could cost the partitions"
	switch beat, session := broker.Field("HeartbeatInterval"), broker.Field("SessionTimeout"); {
	case c.HeartbeatInterval <= c.SessionTimeout/3:
	case set.HeartbeatInterval != 0:
		f.Add(beat, "is %v, more than a third of %v, %v: %s", c.HeartbeatInterval, session, c.SessionTimeout, late)
	default:
		f.Add(session, "is %v, less than three times %v, %v: %s", c.SessionTimeout, beat, c.HeartbeatInterval, late)
	}
	const runs = "the group would go on while handlers still run"
	switch revoke, rebalance := broker.Field("RevokeWait"), broker.Field("RebalanceTimeout"); {
	case c.RevokeWait < c.RebalanceTimeout:
	case set.RevokeWait != 0:
		f.Add(revoke, "is %v, not below %v, %v: %s", c.RevokeWait, rebalance, c.RebalanceTimeout, runs)
	default:
		f.Add(rebalance, "is %v, not above %v, %v: %s", c.RebalanceTimeout, revoke, c.RevokeWait, runs)
	}
	return f.Err()
}

// mostName is how long a name may be that goes into requests. A string there has at most 32,767 bytes: a longer one would have
// its length wrap, and the broker read the rest of it as something else; and a transactional id is made of two names, of
// which one can become three times as long.
const mostName = 8_000

func checkName(f *broker.Findings, at broker.Field, name string) {
	f.Check(len(name) <= mostName, at, "has %d bytes, want at most %d", len(name), mostName)
	f.Check(!strings.ContainsFunc(name, unicode.IsControl), at, "is %.100q: no control characters", name)
	f.Check(utf8.ValidString(name), at, "is %.100q, which is not UTF-8", name)
	f.Check(name == "" || strings.TrimSpace(name) != "", at, "is %.100q, which is blank", name)
}

func (c Config) validateTopics(f *broker.Findings) {
	switch topics, pattern := broker.Field("Topics"), broker.Field("Pattern"); {
	case len(c.Topics) == 0 && c.Pattern == "":
		f.Add(topics, "is missing: want %v, or %v", topics, pattern)
	case len(c.Topics) > 0 && c.Pattern != "":
		f.Add(pattern, "is set, and so is %v: set one", topics)
	}
	for i, t := range c.Topics {
		at := broker.Field(fmt.Sprintf("Topics[%d]", i))
		if j := slices.Index(c.Topics, t); !ValidTopic(t) {
			f.Add(at, "is %q, which is no topic: up to 249 letters, digits, dots, - and _", t)
		} else if j < i {
			f.Add(at, "is %q, and so is %v", t, broker.Field(fmt.Sprintf("Topics[%d]", j)))
		}
	}
	validatePattern(f, c.Pattern)
}

func validatePattern(f *broker.Findings, pattern string) {
	if _, err := regexp.Compile(pattern); err != nil {
		f.Add("Pattern", "is %q: %v", pattern, err)
	}
}

// matcher says whether a topic is to be consumed. The pattern was checked.
func (c Config) matcher() func(topic string) bool {
	if c.Pattern == "" {
		return func(t string) bool { return slices.Contains(c.Topics, t) }
	}
	re := regexp.MustCompile("^(?:" + c.Pattern + ")$")
	return func(t string) bool { return !strings.HasPrefix(t, "__") && re.MatchString(t) }
}
