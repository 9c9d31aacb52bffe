package admin_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/longshoremq/longshore/broker/membroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/admin"
)

// The server of a process: a probe of Kubernetes asks /readyz.
func Example() {
	b := membroker.New(membroker.Config{Topics: map[string]int{"orders": 1}})
	c, err := consumer.New(consumer.Config{
		Source:  b.Source(membroker.SourceConfig{Topics: []string{"orders"}}),
		Handler: func(context.Context, *consumer.Message) error { return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	server, err := admin.New(admin.Config{
		Listen:  "127.0.0.1:0", // a free port; leave it out for 8080
		Targets: map[string]admin.Target{"orders": c},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := server.Listen(ctx); err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	go func() { served <- server.Run(ctx) }()

	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + server.Addr().String() + "/readyz") // the consumer does not run yet
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	fmt.Printf("%d %s", answer.StatusCode, body)

	stop()
	fmt.Println(<-served)
	// Output:
	// 503 orders: not running, or without contact with its broker
	// <nil>
}
