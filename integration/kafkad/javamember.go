//go:build unix

package kafkad

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/longshoremq/longshore/integration/daemon"
)

// A JavaMember is a consumer of Kafka's own Java client in a JVM: the console consumer, which commits what it has printed each
// tenth of a second, when a rebalance takes a partition, and at its end.
type JavaMember struct {
	process *daemon.Process
	lines   *lines
}

// StartJavaMember lets a Java client join a group, which begins at the topic's first message. assignor is a class of
// org.apache.kafka.clients.consumer; empty: the broker assigns (group.protocol=consumer). properties come over those that make
// it commit and learn of rebalances soon. ErrNoTool where it cannot be had.
func (k *Cluster) StartJavaMember(topic, group, assignor string, properties map[string]string) (*JavaMember, error) {
	a, err := apacheTools()
	if err != nil || !k.Real() {
		return nil, ErrNoTool
	}
	all := map[string]string{"auto.commit.interval.ms": "100", "metadata.max.age.ms": "1000"}
	if assignor == "" {
		all["group.protocol"] = "consumer"
	} else {
		all["partition.assignment.strategy"] = "org.apache.kafka.clients.consumer." + assignor
		all["heartbeat.interval.ms"] = "100"
	}
	maps.Copy(all, properties)
	args := []string{"--bootstrap-server", strings.Join(k.Brokers(), ","), "--topic", topic, "--group", group, "--from-beginning"}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "--command-property", name+"="+all[name])
	}
	m := &JavaMember{process: daemon.New("a Java member of group " + group), lines: &lines{}}
	cmd := a.command("128m", "org.apache.kafka.tools.consumer.ConsoleConsumer", args...)
	cmd.Stdout = m.lines
	if err := m.process.Start(cmd); err != nil {
		return nil, err
	}
	return m, nil
}

// Seen is the values of the messages that it got, in their order.
func (m *JavaMember) Seen() []string { return m.lines.whole() }

// Stop ends it in good order: it commits, and leaves the group.
func (m *JavaMember) Stop(limit time.Duration) error {
	if err := m.process.Stop(limit); err != nil {
		return fmt.Errorf("%w, after %d messages", err, len(m.Seen()))
	}
	return nil
}

// Kill ends it at once, where it runs.
func (m *JavaMember) Kill() { m.process.Kill() }

// Log is the end of what it told on its standard error.
func (m *JavaMember) Log() string { return m.process.Log() }

// lines keeps what is written to it. Safe for concurrent use.
type lines struct {
	mu sync.Mutex
	b  []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	return len(p), nil
}

// whole are the lines that are complete.
func (l *lines) whole() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.b) {
		if text, ok := bytes.CutSuffix(line, []byte("\n")); ok {
			all = append(all, string(text))
		}
	}
	return all
}
