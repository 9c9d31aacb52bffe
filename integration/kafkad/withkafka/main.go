//go:build unix

// Withkafka runs a command with a Kafka of its own: it starts one, waits until it serves, sets KAFKA_BROKERS, and kills it when the command has
// ended, whose exit code it returns. Where KAFKA_BROKERS is set it runs the command alone.
//
//	go run ./integration/kafkad/withkafka go test ./broker/kafkabroker
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/longshoremq/longshore/integration/kafkad"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: withkafka command [argument]...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1], os.Args[2:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "withkafka:", err)
	}
	os.Exit(code)
}

func run(ctx context.Context, name string, args []string) (code int, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if os.Getenv("KAFKA_BROKERS") == "" {
		kafka, err := kafkad.Open(kafkad.Config{})
		if err != nil {
			return 1, fmt.Errorf("starting Kafka: %w", err)
		}
		defer kafka.Close()
		cmd.Env = append(os.Environ(), "KAFKA_BROKERS="+strings.Join(kafka.Brokers(), ","))
	}
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() > 0 {
		return ended.ExitCode(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("running %s: %w", name, err)
	}
	return 0, nil
}
