// Command own is longshore with a handler of its own.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program"
)

func newAppend(_ *handlers.Setup, o handlers.Options) (consumer.Handler, error) {
	var c struct {
		File string `yaml:"file"`
	}
	if err := o.Decode(&c); err != nil {
		return nil, err
	}
	return func(_ context.Context, m *consumer.Message) error {
		f, err := os.OpenFile(c.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = fmt.Fprintln(f, m.Topic)
		return err
	}, nil
}

func main() {
	handlers.Register("append", newAppend)
	program.Main(handlers.Default())
}
