package config

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/internal/plaintext"
)

// Defaults of the Kafka adapter that contradictions are held against.
const (
	defaultSession   = 10 * time.Second
	defaultHeartbeat = time.Second
	defaultRevoke    = 15 * time.Second
	defaultRebalance = time.Minute
	defaultPublish   = 1_000_000
)

// maxBytesOfKafka is half of what Kafka's 32-bit lengths can say.
const maxBytesOfKafka = math.MaxInt32 / 2

var (
	balancers  = []string{"sticky", "range", "roundrobin"}
	outOfRange = []string{"earliest", "latest", "stop"}
	isolations = []string{"read_committed", "read_uncommitted"}
	badBatches = []string{"stop", "skip"}
	mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
	topicName  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
)

func validTopic(s string) bool { return topicName.MatchString(s) && s != "." && s != ".." }

// StartTime is the time that start names, if it names one.
func (k *Kafka) StartTime() (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, k.Start)
	return t, err == nil
}

// reads says whether the consumer reads a topic, and by which key. A pattern stands for whole names, and never for internal
// topics.
func (k *Kafka) reads(topic string) (by string, ok bool) {
	if i := slices.Index(k.Topics, topic); i >= 0 {
		return fmt.Sprintf("topics[%d]", i), true
	}
	if k.TopicsPattern == "" || strings.HasPrefix(topic, "__") {
		return "", false
	}
	re, err := regexp.Compile("^(?:" + k.TopicsPattern + ")$")
	return fmt.Sprintf("topics_pattern, %q,", k.TopicsPattern), err == nil && re.MatchString(topic)
}

func (d *Document) checkKafka(at string, k *Kafka) {
	d.checkBrokers(at, k)
	d.checkTopics(at, k)
	if k.Group == "" {
		d.Find(at+".group", "is missing")
	}
	for _, name := range []struct{ key, value string }{{".client_id", k.ClientID}, {".instance_id", k.InstanceID}, {".rack", k.Rack}} {
		if d.Has(at+name.key) && name.value == "" {
			d.Find(at+name.key, "is empty")
		}
	}
	d.oneOf(at+".missing", k.Missing, missings)
	d.oneOf(at+".balancer", k.Balancer, balancers)
	d.oneOf(at+".out_of_range", k.OutOfRange, outOfRange)
	d.oneOf(at+".isolation", k.Isolation, isolations)
	d.oneOf(at+".on_bad_batch", k.OnBadBatch, badBatches)
	d.checkStart(at+".start", k)
	d.checkGroupTimes(at, k)
	d.atLeast(at+".commit_messages", int64(k.CommitMessages), 1)
	d.atLeast(at+".crash_limit", int64(k.CrashLimit), 1)
	for _, n := range []struct {
		key   string
		value int
	}{{".max_batch_bytes", k.MaxBatchBytes}, {".max_publish_bytes", k.MaxPublishBytes}} {
		if d.Has(at + n.key) {
			d.within(at+n.key, n.value, 1, maxBytesOfKafka)
		}
	}
	if t := k.TLS; t != nil {
		d.checkTLS(at+".tls", &TLS{CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile}, time.Now())
	}
	if k.SASL != nil {
		d.checkSASL(at, k)
	}
}

// checkStart: Kafka counts times from 1970, and takes what is before for a code.
func (d *Document) checkStart(path string, k *Kafka) {
	switch at, ok := k.StartTime(); {
	case ok && at.UnixMilli() < 0:
		d.Find(path, "is %q, want a time from 1970 on", k.Start)
	case d.Has(path) && !ok && k.Start != "earliest" && k.Start != "latest":
		d.Find(path, "is %q, want earliest, latest, or a time such as 2026-11-21T15:04:05Z", k.Start)
	}
}

func (d *Document) checkBrokers(at string, k *Kafka) {
	if len(k.Brokers) == 0 {
		d.Find(at+".brokers", "is missing or empty: want host:port of one broker at least")
	}
	for i, b := range k.Brokers {
		if strings.Contains(b, "@") {
			d.Find(at+".brokers["+strconv.Itoa(i)+"]", "has a user or a password in it: want host:port; they go into sasl")
			continue
		}
		host, port, err := net.SplitHostPort(b)
		if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || host == "" {
			d.Find(at+".brokers["+strconv.Itoa(i)+"]", "is %q, want host:port, as in 127.0.0.1:9092", b)
		}
	}
}

func (d *Document) checkTopics(at string, k *Kafka) {
	switch {
	case d.Has(at+".topics") && d.Has(at+".topics_pattern"):
		d.Find(at+".topics_pattern", "is set, and so is topics: set one")
	case d.Has(at+".topics") && len(k.Topics) == 0:
		d.Find(at+".topics", "is empty")
	case d.Has(at+".topics_pattern") && k.TopicsPattern == "":
		d.Find(at+".topics_pattern", "is empty")
	case !d.Has(at+".topics") && !d.Has(at+".topics_pattern"):
		d.Find(at+".topics", "is missing: want topics, or topics_pattern")
	}
	for i, t := range k.Topics {
		path := at + ".topics[" + strconv.Itoa(i) + "]"
		if !validTopic(t) {
			d.Find(path, "is %q, which is no topic: up to 249 letters, digits, dots, - and _", t)
		} else if j := slices.Index(k.Topics, t); j < i {
			d.Find(path, "is %q, and so is topics[%d]", t, j)
		}
	}
	if _, err := regexp.Compile(k.TopicsPattern); err != nil {
		d.Find(at+".topics_pattern", "is %q: %v", k.TopicsPattern, err)
	}
}

// checkGroupTimes: what a group's members must agree on with their broker, and with themselves.
func (d *Document) checkGroupTimes(at string, k *Kafka) {
	for _, t := range []struct {
		key   string
		value time.Duration
	}{
		{".session_timeout", k.SessionTimeout}, {".heartbeat_interval", k.HeartbeatInterval}, {".revoke_wait", k.RevokeWait},
		{".rebalance_timeout", k.RebalanceTimeout}, {".commit_interval", k.CommitInterval},
	} {
		d.duration(at+t.key, t.value)
	}
	beat, session := cmp.Or(k.HeartbeatInterval, defaultHeartbeat), cmp.Or(k.SessionTimeout, defaultSession)
	switch {
	case beat <= session/3:
	case d.Has(at + ".heartbeat_interval"):
		d.Find(at+".heartbeat_interval", "is %v, more than a third of session_timeout, %v: one late heartbeat could cost the partitions", beat, session)
	default:
		d.Find(at+".session_timeout", "is %v, less than three times heartbeat_interval, %v: one late heartbeat could cost the partitions", session, beat)
	}
	revoke, rebalance := cmp.Or(k.RevokeWait, defaultRevoke), cmp.Or(k.RebalanceTimeout, defaultRebalance)
	switch {
	case revoke < rebalance:
	case d.Has(at + ".revoke_wait"):
		d.Find(at+".revoke_wait", "is %v, not below rebalance_timeout, %v: the group would go on while handlers still run", revoke, rebalance)
	default:
		d.Find(at+".rebalance_timeout", "is %v, not above revoke_wait, %v: the group would go on while handlers still run", rebalance, revoke)
	}
}

func (d *Document) checkSASL(at string, k *Kafka) {
	s := k.SASL
	if s.Mechanism == "" {
		d.Find(at+".sasl.mechanism", "is missing, want one of %v", mechanisms)
	}
	d.oneOf(at+".sasl.mechanism", s.Mechanism, mechanisms)
	if s.User == "" {
		d.Find(at+".sasl.user", "is missing")
	}
	if s.Password.IsZero() && s.PasswordFile == "" {
		d.Find(at+".sasl.password", "is missing: want password, or password_file")
	}
	if k.TLS != nil || s.PlaintextAuth {
		return
	}
	for i, b := range k.Brokers {
		if host, _, err := net.SplitHostPort(b); err == nil && plaintext.Exposed(host) {
			d.Find(at+".brokers["+strconv.Itoa(i)+"]", "is %q: a login would go there without TLS; set tls: {}, or sasl.plaintext_auth", b)
		}
	}
}

// checkRoundTrip: what is published to a topic that the pattern matches comes back. With topics, publish finds it itself.
func (d *Document) checkRoundTrip(path, source string, r Route, k *Kafka) {
	to := r.publishesTo()
	if to == "" || k.TopicsPattern == "" {
		return
	}
	if by, reads := k.reads(to); reads {
		d.Find(path+".with.to", "is %q, which %s.kafka.%s takes: messages would go round for ever", to, source, by)
	}
}

// checkGroups: two sources of one group and topic would take each other's messages.
func (d *Document) checkGroups() {
	all := slices.DeleteFunc(d.reads(), func(r read) bool { return r.Kafka == nil || r.Kafka.Group == "" })
	for i, r := range all {
		at, k := r.at()+".kafka", r.Kafka
		for _, other := range all[:i] {
			o := other.Kafka
			if o.Group != k.Group || !slices.Equal(slices.Sorted(slices.Values(o.Brokers)), slices.Sorted(slices.Values(k.Brokers))) {
				continue
			}
			if topic, both := shared(o, k); both {
				d.Find(at+".group", "is %q, as with %s, and both read %s: they would take each other's messages", k.Group, other.as(r), topic)
			}
			if k.InstanceID != "" && k.InstanceID == o.InstanceID {
				d.Find(at+".instance_id", "is %q in group %q, as with %s: each would put the other out of the group", k.InstanceID, k.Group, other.as(r))
			}
		}
	}
}

// shared is a topic that both read. Of two patterns nobody knows, so they are taken to share one.
func shared(one, other *Kafka) (topic string, ok bool) {
	if one.TopicsPattern != "" && other.TopicsPattern != "" {
		return "topics by a pattern", true
	}
	for _, t := range slices.Concat(one.Topics, other.Topics) {
		_, a := one.reads(t)
		if _, b := other.reads(t); a && b {
			return fmt.Sprintf("topic %q", t), true
		}
	}
	return "", false
}
