package kafkabroker

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
)

// child is a consumer in a process of its own: it prints each value when its handler is done, and acks it after that.
func child() {
	t := new(testing.T)
	var mu sync.Mutex
	n := 0
	cfg := Config{Connection: Connection{Brokers: strings.Split(os.Getenv("KAFKA_BROKERS"), ",")}, Group: os.Getenv("KAFKABROKER_CHILD"),
		Topics: []string{os.Getenv("KAFKABROKER_CHILD")}, SessionTimeout: time.Second, HeartbeatInterval: 200 * time.Millisecond}
	startCrew(t, cfg, 16, func(m *broker.Message) {
		d := 5 * time.Millisecond
		mu.Lock()
		if n++; n%100 == 0 {
			d = 400 * time.Millisecond
		}
		mu.Unlock()
		time.Sleep(d)
		mu.Lock()
		fmt.Println(string(m.Value))
		mu.Unlock()
	})
	select {}
}

// TestKilled kills one of two processes with SIGKILL again and again on real Kafka (f01): nothing is lost, and each kill repeats about what its
// workers had in hand.
func TestKilled(t *testing.T) {
	const partitions, kills = 8, 10
	admin, brokers, topic := realKafka(t, partitions)
	var mu sync.Mutex
	times := make(map[string]int)
	start := func() *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "KAFKABROKER_CHILD="+topic, "KAFKA_BROKERS="+strings.Join(brokers, ","))
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				mu.Lock()
				times[lines.Text()]++
				mu.Unlock()
			}
		}()
		return c
	}
	kill := func(c *exec.Cmd) {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	cs := []*exec.Cmd{start(), start()}
	over := make(chan int)
	stop := make(chan struct{})
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				_ = admin.Flush(context.Background())
				over <- n
				return
			default:
			}
			admin.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(n % partitions), Value: []byte(fmt.Sprint(n))}, nil)
			time.Sleep(time.Millisecond)
		}
	}()
	for i := range kills {
		time.Sleep(2500 * time.Millisecond)
		kill(cs[i%2])
		cs[i%2] = start()
	}
	close(stop)
	n := <-over
	seen := func() int { mu.Lock(); defer mu.Unlock(); return len(times) }
	eventually(t, "all messages were handled", func() bool { return seen() == n })
	eventually(t, "everything is committed", func() bool { return committedOn(t, admin, topic, topic, partitions) == int64(n) })
	for _, c := range cs {
		kill(c)
	}
	twice := 0
	for _, k := range times {
		twice += k - 1
	}
	t.Logf("%d messages, %d kills, %d handled again: %.1f for each kill", n, kills, twice, float64(twice)/kills)
}
