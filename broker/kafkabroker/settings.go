package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/longshoremq/longshore/broker"
)

// Group settings are what the broker holds a group of the consumer protocol to.
type groupSettings struct {
	session time.Duration // after how long a silence a member is taken for dead; 0: unknown
	// epochs: commits are checked by the epoch at which their partition was assigned, and not by the member's (Kafka 4.3).
	epochs bool
}

const (
	sessionSetting = "consumer.session.timeout.ms"
	// batchSetting came with Kafka 4.3, as did the epochs of partitions: the version of a request tells neither.
	batchSetting = "consumer.assignment.interval.ms"
)

// settingsEvery is how often they are read again: an administrator may change them.
const settingsEvery = time.Minute

// longSession is from when on a session is warned about.
const longSession = 15 * time.Second

// learn reads the group's settings, and warns where a crash costs much.
func (g *modern) learn(ctx context.Context) {
	ask, cancel := context.WithTimeout(ctx, g.patience())
	s, err := g.k.settings(ask)
	cancel()
	switch {
	case err == nil:
		g.hold(s)
		g.readAt = time.Now().Add(settingsEvery)
		if s.session > longSession && s != g.complain {
			g.complain = s
			g.warn(s.complaint(g.cfg.Group))
		}
	case codeOf(err) == 0 && !errors.Is(err, errNoSettings): // nobody answered
		g.readAt = time.Now().Add(g.m.normal)
	default:
		g.readAt = time.Now().Add(settingsEvery)
		if !g.blind {
			g.blind = true
			g.warn(fmt.Errorf("group %s: a silence of %v is taken for the end of the session: %w", g.cfg.Group, g.contact().length, err))
		}
	}
}

// hold takes what the broker holds the group to.
func (g *modern) hold(s groupSettings) {
	g.mu.Lock()
	g.m.raises = g.m.raises || s.epochs && !g.epochs
	g.session.length, g.epochs = s.session, s.epochs
	g.mu.Unlock()
}

// complaint says what a long session means.
func (s groupSettings) complaint(group string) error {
	return fmt.Errorf("group %s: the partitions of a process that was killed wait %v for another one: %s of the group (or "+
		"group.consumer.session.timeout.ms of the brokers) says so, and not our own session timeout", group, s.session,
		sessionSetting)
}

func (g *modern) warn(err error) { g.say(broker.Event{Kind: broker.Warning, Err: err}) }

// settings reads what the broker holds the group to (DescribeConfigs, version 1). An error that is broker's answer has its code.
func (k *coordinator) settings(ctx context.Context) (groupSettings, error) {
	r, err := k.do(ctx, keyDescribeConfigs, 1, settingsBody(groupResource, k.group, sessionSetting, batchSetting))
	if err != nil {
		return groupSettings{}, err
	}
	values, code, err := readSettings(r)
	if err != nil {
		return groupSettings{}, err
	}
	if err := k.check("reading the group's settings", code); err != nil {
		return groupSettings{}, err
	}
	return settingsOf(values)
}

// The kinds of what has settings.
const (
	topicResource = 2
	groupResource = 32
)

// settingsBody asks for settings of one thing.
func settingsBody(kind int8, of string, names ...string) []byte {
	w := writer{}
	w.array(1)
	w.i8(kind)
	w.str(of)
	w.strs(names)
	w.bool(false) // synonyms
	return w.b
}

// policySetting says what becomes of a topic's old messages: delete, compact, or both.
const policySetting = "cleanup.policy"

// retentionSetting is for how long a topic keeps messages at least, where it deletes them; -1: for ever.
const retentionSetting = "retention.ms"

// topicSettings reads settings of a topic (DescribeConfigs, version 1). An error that is the broker's answer has its code.
func (c *cluster) topicSettings(ctx context.Context, topic string, names ...string) (map[string]string, error) {
	r, err := c.do(ctx, anyNode, keyDescribeConfigs, 1, settingsBody(topicResource, topic, names...))
	if err != nil {
		return nil, err
	}
	values, code, err := readSettings(r)
	if err == nil {
		err = codeErr(code)
	}
	return values, err
}

var errNoSettings = errors.New("the broker has no settings of groups")

func settingsOf(values map[string]string) (s groupSettings, err error) {
	text, ok := values[sessionSetting]
	if !ok {
		return s, errNoSettings
	}
	ms, err := strconv.ParseInt(text, 10, 32)
	if err != nil || ms <= 0 {
		return s, fmt.Errorf("%s is %q: %w", sessionSetting, text, errShort)
	}
	_, s.epochs = values[batchSetting]
	s.session = time.Duration(ms) * time.Millisecond
	return s, nil
}

// readSettings reads the settings of the one resource that was asked for.
func readSettings(r *reader) (values map[string]string, code int16, err error) {
	r.i32() // throttled
	values = make(map[string]string)
	r.each(func() {
		code = r.i16()
		r.str() // message
		r.i8()
		r.str()
		r.each(func() {
			name := r.str()
			values[name] = r.str()
			r.i8() // read only
			r.i8() // source
			r.i8() // sensitive
			r.each(func() {
				r.str()
				r.str()
				r.i8()
			})
		})
	})
	return values, code, r.err()
}
