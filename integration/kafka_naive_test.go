//go:build unix

package integration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/longshoremq/longshore/integration/ledger"
)

// runCommitEach is the pool that one writes first: kafka-go's Reader, a channel, goroutines that handle and then commit. A commit
// says that all before it is finished too, which nobody knows here.
func runCommitEach(ctx context.Context, c consumerConfig, w *work) error {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: strings.Split(c.URL, ","), GroupID: c.Group, Topic: c.Topic,
		StartOffset: kafka.FirstOffset,
		MaxWait:     time.Second, SessionTimeout: c.Lease, HeartbeatInterval: c.Lease / 5, RebalanceTimeout: 5 * time.Second,
		JoinGroupBackoff: 200 * time.Millisecond})
	queue := make(chan kafka.Message, c.Workers)
	var workers sync.WaitGroup
	for range c.Workers {
		workers.Go(func() {
			for m := range queue {
				err := w.do(context.Background(), ledger.Seq(int32(m.Partition), m.Offset), m.Value)
				if err == nil {
					err = reader.CommitMessages(context.Background(), m)
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, "handling:", err)
				}
			}
		})
	}
	say("up")
	for ctx.Err() == nil {
		m, err := reader.FetchMessage(ctx)
		if err != nil {
			continue // also where no broker answers: it comes back
		}
		queue <- m
	}
	close(queue)
	workers.Wait()
	return reader.Close()
}
