//go:build unix

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/longshoremq/longshore/integration/kafkad"
)

// lateTopic starts consumers on a topic that is made later, and adds partitions to it under load.
func lateTopic(t *testing.T, _ kind) string {
	needsKafka(t)
	s := lateKafkaSystem(t, kafkad.Shared(t))
	f := newField(t, s, longshoreConsumer)
	f.calm(t)
	f.startConsumers(t, 2)
	s.createTopic(t, loadPartitions/2)
	f.load = f.startLoad(t, faultRate, 0)
	made := f.moves(t, faultRate)
	if err := s.cluster.AddPartitions(t.Context(), s.topic, loadPartitions); err != nil {
		t.Fatal(err)
	}
	s.partitions.Store(loadPartitions)
	f.balanced(t)
	added := f.moves(t, 2*faultRate)
	a := f.finish(t)
	a.noDuplicates(t)
	return fmt.Sprintf("a second's messages took %v after the topic was made, two %v after it grew; %v",
		made.Round(time.Millisecond), added.Round(time.Millisecond), a)
}

// begun has a consumer that handled 100 messages and stopped, so that all is committed.
func (f *field) begun(t *testing.T) {
	t.Helper()
	f.startConsumers(t, 1)
	f.publish(t, 100)
	eventually(t, "100 are handled", func() bool { return len(f.entries(t)) >= 100 })
	if code, _ := f.consumers[0].terminate(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	f.consumers = nil
}

// trimmed lets retention remove 50 messages of one partition and 25 of another that nobody handled, while no process runs.
func trimmed(t *testing.T, k kind) string {
	f := newField(t, k.start(t), longshoreConsumer)
	s := f.onKafka()
	f.begun(t)
	before := s.mustCommitted(t)
	f.publish(t, 50*loadPartitions)
	for partition, n := range map[int32]int64{2: 50, 5: 25} {
		if err := s.cluster.DeleteRecords(t.Context(), s.topic, int(partition), before[partition]+n); err != nil {
			t.Fatal(err)
		}
	}
	f.startConsumers(t, 1)
	p := f.consumers[0]
	f.reportsGap(t, p, 100+50*loadPartitions-75, 75)
	eventually(t, "all is committed", func() bool { return s.progress(t).settled })
	if code, _ := p.terminate(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	f.audit(t)
	return fmt.Sprintf("75 skipped, %d reported", gaps(p))
}

// beyondEnd sets the position in one partition behind its end, as after a truncation: by policy it is an error that names it, or
// the partition begins anew.
func beyondEnd(t *testing.T, k kind) string {
	f := newField(t, k.start(t), longshoreConsumer)
	s := f.onKafka()
	f.begun(t)
	end := s.mustCommitted(t)[3]
	if err := s.cluster.CommitOffset(t.Context(), s.group, s.topic, 3, 5000); err != nil {
		t.Fatal(err)
	}
	f.config.OutOfRange = "stop"
	began := time.Now()
	stopped := f.start(t)
	code := stopped.exit(t)
	surfaced := time.Since(began)
	if where := s.topic + "/3"; code != 1 || !strings.Contains(stopped.err.tail(), where) ||
		!strings.Contains(stopped.err.tail(), "5000") {
		t.Errorf("with policy stop it exits with %d and %q; want 1, %s and 5000", code, stopped.err.tail(), where)
	}
	f.config.OutOfRange = "earliest"
	f.startConsumers(t, 1)
	p := f.consumers[0]
	p.says(t, "gap", 1)
	f.publish(t, 50*loadPartitions)
	want := 100 + int(end) + 50*loadPartitions
	eventually(t, fmt.Sprintf("%d are handled, partition 3 anew", want), func() bool { return len(f.entries(t)) >= want })
	eventually(t, "all is committed", func() bool { return s.progress(t).settled })
	if n := len(f.entries(t)); n != want {
		t.Errorf("%d handled, want %d", n, want)
	}
	if code, _ := p.terminate(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	return fmt.Sprintf("surfaced after %v with exit code %d; with earliest its %d messages came again, and all after them",
		surfaced.Round(time.Millisecond), code, end)
}

// mustCommitted is what is committed by now.
func (s *kafkaSystem) mustCommitted(t *testing.T) map[int32]int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	offsets, err := s.committed(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return offsets
}
