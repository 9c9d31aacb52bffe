package integration

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/internal/dialer"
)

func TestAdaptersDialByIt(t *testing.T) {
	for name, probe := range map[string]func(context.Context, dialer.Func) error{
		"kafka": func(ctx context.Context, dial dialer.Func) error {
			conn := kafkabroker.Connection{Brokers: []string{"192.0.2.1:9092"}} // an address of documents: nobody is there
			dialer.Use(&conn, dial)
			v, err := kafkabroker.NewLogView(kafkabroker.LogViewConfig{Connection: conn})
			if err != nil {
				return err
			}
			defer v.Close()
			_, err = v.Scan(ctx, broker.Scan{Topic: "t"}, func(*broker.Message) error { return nil })
			return err
		},
		"nats": func(ctx context.Context, dial dialer.Func) error {
			conn := natsbroker.Connection{URLs: []string{"nats://192.0.2.1:4222"}}
			dialer.Use(&conn, dial)
			v, err := natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: conn})
			if err != nil {
				return err
			}
			defer v.Close()
			_, err = v.Subjects(ctx, "S")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			asked := 0
			_ = probe(ctx, func(_ context.Context, _, _ string) (net.Conn, error) {
				asked++
				cancel()
				return nil, errors.New("not today")
			})
			if asked == 0 {
				t.Error("it connects by other means")
			}
		})
	}
}
