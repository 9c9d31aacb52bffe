package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/brokertest"
	"github.com/longshoremq/longshore/consumer"
)

const crashEnv = "KAFKABROKER_CRASH"

// crashChild is a process whose handler ends it at one message, and says on its standard output what it finished.
func crashChild(args []string) {
	c := Connection{Brokers: args[:1]}
	src, err := NewSource(Config{Connection: c, Group: testGroup, Topics: args[1:2], SessionTimeout: time.Second,
		HeartbeatInterval: 100 * time.Millisecond,
		CommitInterval:    5 * time.Millisecond, CrashLimit: 3})
	p, err2 := NewPublisher(PublisherConfig{Connection: c})
	if err := errors.Join(err, err2); err != nil {
		panic(err)
	}
	run, err := consumer.New(consumer.Config{Source: src, Pool: consumer.Pool{Min: 8, Max: 8}, Logger: zerolog.Nop(),
		DeadLetter: &consumer.DeadLetter{Publisher: p, Topic: args[2]},
		Handler: func(_ context.Context, m *consumer.Message) error {
			if m.Offset == 5 && m.Partition == 0 {
				time.Sleep(50 * time.Millisecond)
				os.Exit(3)
			}
			time.Sleep(20 * time.Millisecond)
			fmt.Println(string(m.Value))
			return nil
		}})
	if err != nil {
		panic(err)
	}
	_ = run.Run(context.Background())
}

func allIn(ps []progressOf) bool {
	return !slices.ContainsFunc(ps, func(p progressOf) bool { return p.committed < p.end })
}

// TestCrashes: real processes that os.Exit at a message, through the engine. It comes to the dead letters with the number of
// them, all others are handled, and the last process lives.
func TestCrashes(t *testing.T) {
	t.Parallel()
	ts := startFake(t, brokertest.Setup{Topics: 2, Partitions: 2}, "sticky")
	all := ts.put(t, ts.topics[0], 0, 20)
	var out strings.Builder
	crashes := 0
	for done := false; !done; {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), crashEnv+"="+ts.brokers[0]+" "+ts.topics[0]+" "+ts.topics[1])
		child.Stdout, child.Stderr = &out, os.Stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); _ = child.Wait() }()
		for settled := false; !settled; time.Sleep(5 * time.Millisecond) {
			select {
			case <-ended:
				crashes++
				settled = true
			default:
				settled = ts.cluster.GroupInfo(testGroup) != nil && allIn(ts.fakeProgress(ts.topics[0]))
				done = settled
			}
		}
		if crashes > 8 {
			t.Fatal("it goes on crashing")
		}
		_ = child.Process.Kill()
		<-ended
	}
	letters := ts.deadLetters(t, 1)
	if crashes < 4 {
		t.Errorf("%d processes crashed, want 4 at least", crashes)
	}
	if text := headerOf(letters[0], broker.HeaderError); headerOf(letters[0], broker.HeaderOriginalOffset) != "5" ||
		!strings.Contains(text, "processes in a row") {
		t.Errorf("the letter has the headers %v", letters[0].Headers)
	}
	for i, v := range all {
		if i != 10 && !strings.Contains(out.String(), v+"\n") {
			t.Errorf("%s was not handled", v)
		}
	}
}
