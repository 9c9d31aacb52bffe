package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/internal/conftag"
)

// defaultPublish is the default of max_publish_bytes.
const defaultPublish = 1_000_000

// Adapter is the adapter's Config.
func (k *Kafka) Adapter() kafkabroker.Config {
	c := k.Config
	c.Uncommitted, c.SkipUndecodable = k.Isolation == "read_uncommitted", k.OnBadBatch == "skip"
	if k.SASL != nil {
		c.SASL = k.SASL.SASL
	}
	c.MaxOutputBytes = k.MaxPublishBytes
	return c
}

// reads says whether the consumer reads a topic, and by which key. A pattern stands for whole names, and never for internal
// topics.
func (k *Kafka) reads(topic string) (by string, ok bool) {
	if i := slices.Index(k.Topics, topic); i >= 0 {
		return fmt.Sprintf("topics[%d]", i), true
	}
	if k.Pattern == "" || strings.HasPrefix(topic, "__") {
		return "", false
	}
	re, err := regexp.Compile("^(?:" + k.Pattern + ")$")
	return fmt.Sprintf("topics_pattern, %q,", k.Pattern), err == nil && re.MatchString(topic)
}

// checkKafka: what the file must say although the adapter has a default, and what it says in its own way. The rest is the
// adapter's to find.
func (sc sectionCheck) checkKafka(k *Kafka) {
	if len(k.Brokers) == 0 {
		sc.find(".brokers", "is missing or empty: want host:port of one broker at least")
	}
	sc.secrets.checkTLS(sc.at+".tls", k.TLS.CAFile, k.TLS.CertFile, k.TLS.KeyFile, time.Now())
	if s := k.SASL; s != nil {
		if s.Mechanism == "" {
			sc.find(".sasl.mechanism", "is missing, want one of %v", conftag.Words(reflect.TypeFor[kafkabroker.SASL](), "Mechanism"))
		}
		if s.Password.IsZero() && s.PasswordFile == "" {
			sc.find(".sasl.password", "is missing: want password, or password_file")
		}
	}
	for _, key := range []string{".transaction_timeout", ".compression"} {
		if sc.has(key) && !k.Transactional {
			sc.find(key, "is set and transactional is not: it is of what is written in transactions, and nothing is")
		}
	}
	if sc.has(".session_timeout") && k.Membership == "consumer" {
		sc.warn(sc.at+".session_timeout", "is set, and membership is consumer: how long a session is says the broker there, "+
			"consumer.session.timeout.ms of the group")
	}
	c := k.Adapter()
	if sc.has(".topics_pattern") && c.Pattern == "" && len(c.Topics) == 0 { // found by its tag
		c.Pattern = "-"
	}
	sc.FindConfig(sc.at, k, c.Validate())
}

// checkPublish: the target is a topic, or each message would become a dead letter; and what is published to a topic that the
// pattern matches comes back. With topics, publish finds that itself.
func (cc *consumerCheck) checkPublish(key, source string, r Route, k *Kafka) {
	to := r.publishesTo()
	if to == "" {
		return
	}
	if !kafkabroker.ValidTopic(to) {
		cc.find(key+".with.to", "is %q: want a topic's name", to)
		return
	}
	if by, reads := k.reads(to); reads && k.Pattern != "" {
		cc.find(key+".with.to", "is %q, which %s.kafka.%s takes: messages would go round for ever", to, source, by)
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
				d.Find(at+".instance_id", "is %q in group %q, as with %s: each would put the other out of the group", k.InstanceID, k.Group,
					other.as(r))
			}
		}
	}
}

// shared is a topic that both read. Of two patterns nobody knows, so they are taken to share one.
func shared(one, other *Kafka) (topic string, ok bool) {
	if one.Pattern != "" && other.Pattern != "" {
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
