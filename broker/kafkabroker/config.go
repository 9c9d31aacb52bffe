package kafkabroker

import (
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/dialer"
	"github.com/longshoremq/longshore/internal/plaintext"
)

// A Connection says where the brokers are and who we are.
type Connection struct {
	// Brokers are host:port of some brokers; the others are learned from them. Defaults to 127.0.0.1:9092.
	Brokers []string
	// ClientID is what brokers show for this process. Defaults to "longshore".
	ClientID string
	// TLS settings. The zero value connects without TLS.
	TLS TLS
	// SASL logs in. The zero value does not.
	SASL SASL
	// DialTimeout bounds connecting, TLS and login together. Defaults to 5 s.
	DialTimeout time.Duration
	// RequestTimeout bounds one exchange with a broker. Defaults to 10 s.
	RequestTimeout time.Duration

	// dial is a test's; see package internal/dialer.
	dial dialer.Func
}

// TLS is how brokers are checked and who we are to them. The least version is TLS 1.2.
type TLS struct {
	// Enabled demands TLS. It is implied by the other fields. Defaults to false.
	Enabled bool
	// CAFile is a PEM file of certificate authorities. Defaults to the system's.
	CAFile string
	// CertFile and KeyFile are our certificate, for mutual TLS. They are read again at each connect, so they can be renewed.
	CertFile string
	KeyFile  string
	// ServerName is the name that the brokers' certificates must carry. Defaults to the host of each.
	ServerName string
}

func (t TLS) wanted() bool {
	return t.Enabled || t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.ServerName != ""
}

// SASL is a login by name and password.
type SASL struct {
	// Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Defaults to none.
	Mechanism string
	User      string
	Password  broker.Secret
	// PlaintextAuth allows a login without TLS to a host that is not this machine: PLAIN shows the password to who reads it there,
	// SCRAM lets them try passwords offline, and both let who stands between act in our name. Set it only on a network that you
	// trust. Defaults to false.
	PlaintextAuth bool
}

// Start is where a partition begins that has no committed offset.
type Start struct {
	// At is "earliest", "latest" or "time".
	At string
	// Time goes with "time": the first message at or after it. Not before 1970.
	Time time.Time
}

// Config is a Kafka source: a member of a consumer group.
type Config struct {
	Connection

	// Group is the consumer group. Processes with the same one share its messages. Required.
	Group string
	// Topics to consume. Topics or Pattern is required.
	Topics []string
	// Pattern consumes all topics whose whole name it matches (RE2), also those that are made later; internal ones (with two leading
	// underscores) never. Defaults to none.
	Pattern string
	// Missing is what Open does where one of Topics does not exist, or Pattern matches none: "wait" for it, with a Warning, and
	// consume the others, or "stop", with an error. Defaults to wait.
	Missing string
	// Start is where a partition without a committed offset begins. The position is committed at once. Defaults to earliest.
	Start Start
	// OutOfRange is what to do when the log does not have our position any more. Where retention has passed it, "earliest" and
	// "latest" both go on at the first message that is left, and a Gap event has the number of those that nobody handled. Where it
	// is beyond the log's end (the log was cut off by an unclean election, or offsets were set by hand), "earliest" begins at the
	// log's first message, so that messages come again, and "latest" at its end, with a Gap event. "stop" ends Receive with an error
	// in both cases. Defaults to earliest.
	OutOfRange string

	// Balancer is "sticky" (cooperative: only partitions that move stop), "range" or "roundrobin" (eager: all stop at each
	// rebalance; for taking over a running group of other clients). Defaults to sticky.
	Balancer string
	// InstanceID is a static name of this process: after a restart within the session timeout it gets its partitions back and nobody
	// else's move. It must be unique in the group. Defaults to none.
	InstanceID string
	// SessionTimeout is after how long a silence the broker gives our partitions to others: what a crash costs. Defaults to 10 s.
	SessionTimeout time.Duration
	// HeartbeatInterval is how often we tell that we live, and so how soon we learn of a rebalance. At most a third of
	// SessionTimeout. Defaults to 1 s.
	HeartbeatInterval time.Duration
	// RevokeWait is how long running handlers may go on when a partition is revoked. Defaults to 15 s.
	RevokeWait time.Duration
	// RebalanceTimeout is how long the group waits for a member that has partitions to give up. It must exceed RevokeWait. Defaults
	// to 60 s.
	RebalanceTimeout time.Duration

	// CommitInterval is how long progress may wait before it is committed, when it is little. Defaults to 1 s.
	CommitInterval time.Duration
	// CommitMessages is from how many finished messages on progress is committed at once, all partitions in one request. With
	// CommitInterval it bounds what a crash does again, beside what handlers are at. It holds up to 50 commits a second (fewer where
	// their metadata is large); above that it is what is finished in 20 ms. Raise it where many processes share a coordinator that
	// is busy. Defaults to 8.
	CommitMessages int
	// CrashLimit is how many processes in a row may end without a goodbye while the same offset is unfinished, before what is
	// unfinished above it is run one message at a time, with nothing else of this source beside it. A message that was alone so when
	// the process ended again is handed out with Message.Crashes, and the engine dead-letters it without another run. Set it (to 3,
	// say) where a message may kill its process: os.Exit, a fault in C, memory. Defaults to 0: never, such messages are warned
	// about.
	CrashLimit int
	// Poll is how often topics are looked at: new ones, new partitions, leaders. Defaults to 1 s.
	Poll time.Duration
	// Uncommitted also hands out messages of transactions that are open or were aborted. Defaults to false: read_committed.
	Uncommitted bool
	// FetchBytes bounds one fetch, within the budget; one batch may go over. Defaults to 4 MiB.
	FetchBytes int
	// PartitionBytes bounds what one fetch brings of one partition. Defaults to 1 MiB.
	PartitionBytes int
	// MaxWait is how long a broker may wait for something to send. Defaults to 500 ms.
	MaxWait time.Duration
	// MaxBatchBytes bounds a decompressed batch; a larger one is undecodable. Defaults to 64 MiB.
	MaxBatchBytes int
	// SkipUndecodable skips a batch that cannot be decoded, with a Gap event. Defaults to false: Receive returns an error that names
	// it.
	SkipUndecodable bool
	// Rack lets brokers name a replica in the same rack to fetch from. Defaults to none.
	Rack string
	// Window bounds how many messages of a partition may be handed out or finished above its lowest unfinished one. Defaults to
	// 65,536.
	Window int

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

func (c Config) withDefaults() Config {
	c.Connection = c.Connection.withDefaults()
	or(&c.Start.At, "earliest")
	or(&c.OutOfRange, "earliest")
	or(&c.Missing, "wait")
	or(&c.Balancer, "sticky")
	or(&c.SessionTimeout, 10*time.Second)
	or(&c.HeartbeatInterval, time.Second)
	or(&c.RevokeWait, 15*time.Second)
	or(&c.RebalanceTimeout, time.Minute)
	or(&c.CommitInterval, time.Second)
	or(&c.CommitMessages, 8)
	or(&c.Poll, time.Second)
	or(&c.FetchBytes, 4<<20)
	or(&c.PartitionBytes, 1<<20)
	or(&c.MaxWait, 500*time.Millisecond)
	or(&c.MaxBatchBytes, 64<<20)
	or(&c.Window, 1<<16)
	return c
}

// resetTime is the time that ListOffsets takes for where to begin, why being what is wrong with the position; nil: there is none.
func (c *Config) resetTime(why error) int64 {
	switch {
	case errors.Is(why, errRecreated): // all of it is new
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

// A findings list collects what is wrong with a configuration, each naming its field.
type findings struct{ errs []error }

func (f *findings) add(format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("kafkabroker: "+format, args...))
}

func (f *findings) positive(field string, d time.Duration) {
	if d < time.Millisecond || d > math.MaxInt32*time.Millisecond {
		f.add("%s is %v: it must be from 1ms to %v", field, d, math.MaxInt32*time.Millisecond)
	}
}

func (f *findings) size(field string, n int) {
	if n < 1 || n > math.MaxInt32/2 {
		f.add("%s is %d: it must be from 1 to %d", field, n, math.MaxInt32/2)
	}
}

func (c Connection) validate(f *findings) {
	for i, b := range c.Brokers {
		if strings.Contains(b, "@") { // it is not shown
			f.add("Brokers[%d] has a user or a password in it: it must be host:port; they go into SASL", i)
			continue
		}
		host, port, err := net.SplitHostPort(b)
		if err != nil || host == "" || port == "" {
			f.add("Brokers[%d] is %q: it must be host:port", i, b)
			continue
		}
		if !c.mayLogIn(host) {
			f.add("Brokers[%d] is %q: the login would go there without TLS; set TLS or SASL.PlaintextAuth", i, b)
		}
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		f.add("TLS.CertFile is %q and TLS.KeyFile is %q: set both or none", c.TLS.CertFile, c.TLS.KeyFile)
	}
	switch c.SASL.Mechanism {
	case "":
		if c.SASL.User != "" || !c.SASL.Password.IsZero() {
			f.add("SASL.User or SASL.Password is set and SASL.Mechanism is empty")
		}
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		if c.SASL.User == "" || c.SASL.Password.IsZero() {
			f.add("SASL.Mechanism is %s: it needs SASL.User and SASL.Password", c.SASL.Mechanism)
		}
	default:
		f.add("SASL.Mechanism is %q: it must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", c.SASL.Mechanism)
	}
	f.positive("DialTimeout", c.DialTimeout)
	f.positive("RequestTimeout", c.RequestTimeout)
}

// mayLogIn says whether the login may be sent to a host.
func (c Connection) mayLogIn(host string) bool {
	return c.SASL.Mechanism == "" || c.TLS.wanted() || c.SASL.PlaintextAuth || !plaintext.Exposed(host)
}

func (c Config) validate() error {
	var f findings
	c.Connection.validate(&f)
	if c.Group == "" {
		f.add("Group is empty")
	}
	if (len(c.Topics) == 0) == (c.Pattern == "") {
		f.add("Topics has %d names and Pattern is %q: set one of them", len(c.Topics), c.Pattern)
	}
	for i, t := range c.Topics {
		if t == "" || slices.Contains(c.Topics[:i], t) {
			f.add("Topics[%d] is %q: it is empty, or there twice", i, t)
		}
	}
	if _, err := regexp.Compile(c.Pattern); err != nil {
		f.add("Pattern is %q: %w", c.Pattern, err)
	}
	if !slices.Contains([]string{"earliest", "latest", "time"}, c.Start.At) || (c.Start.At == "time") == c.Start.Time.IsZero() {
		f.add("Start is %q at %v: it must be earliest, latest, or time with a time", c.Start.At, c.Start.Time)
	} else if c.Start.At == "time" && c.Start.Time.UnixMilli() < 0 { // which ListOffsets takes for something else
		f.add("Start is at %v: it must not be before 1970", c.Start.Time)
	}
	if !slices.Contains([]string{"earliest", "latest", "stop"}, c.OutOfRange) {
		f.add("OutOfRange is %q: it must be earliest, latest or stop", c.OutOfRange)
	}
	if c.Missing != "wait" && c.Missing != "stop" {
		f.add("Missing is %q: it must be wait or stop", c.Missing)
	}
	if _, ok := schemes[c.Balancer]; !ok {
		f.add("Balancer is %q: it must be sticky, range or roundrobin", c.Balancer)
	}
	c.validateTimes(&f)
	f.size("CommitMessages", c.CommitMessages)
	if c.CrashLimit < 0 {
		f.add("CrashLimit is %d: it must not be negative", c.CrashLimit)
	}
	f.size("FetchBytes", c.FetchBytes)
	f.size("PartitionBytes", c.PartitionBytes)
	f.size("MaxBatchBytes", c.MaxBatchBytes)
	f.size("Window", c.Window)
	return errors.Join(f.errs...)
}

func (c Config) validateTimes(f *findings) {
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"SessionTimeout", c.SessionTimeout}, {"HeartbeatInterval", c.HeartbeatInterval}, {"RevokeWait", c.RevokeWait},
		{"RebalanceTimeout", c.RebalanceTimeout}, {"CommitInterval", c.CommitInterval}, {"Poll", c.Poll}, {"MaxWait", c.MaxWait},
	} {
		f.positive(d.name, d.d)
	}
	if 3*c.HeartbeatInterval > c.SessionTimeout {
		f.add("HeartbeatInterval is %v: it may be at most a third of SessionTimeout, %v", c.HeartbeatInterval, c.SessionTimeout)
	}
	if c.RevokeWait >= c.RebalanceTimeout {
		f.add("RevokeWait is %v: it must be less than RebalanceTimeout, %v", c.RevokeWait, c.RebalanceTimeout)
	}
}

// wants says whether a topic is to be consumed. The pattern was checked.
func (c Config) matcher() func(topic string) bool {
	if c.Pattern == "" {
		return func(t string) bool { return slices.Contains(c.Topics, t) }
	}
	re := regexp.MustCompile("^(?:" + c.Pattern + ")$")
	return func(t string) bool { return !strings.HasPrefix(t, "__") && re.MatchString(t) }
}
