package program_test

import (
	"context"
	"fmt"

	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program"
)

// newGreet makes a handler of the options that a route has under "with".
func newGreet(_ *handlers.Setup, o handlers.Options) (consumer.Handler, error) {
	c := struct {
		Greeting string `yaml:"greeting"`
	}{Greeting: "hello"} // the default
	if err := o.Decode(&c); err != nil {
		return nil, err
	}
	return func(_ context.Context, m *consumer.Message) error {
		fmt.Println(c.Greeting, string(m.Value))
		return nil
	}, nil
}

// A program with a handler of its own. Its configuration file says
//
//	routes: [{handler: greet, with: {greeting: good morning}}]
//
// and run, produce, config check and the other commands are those of longshore.
func ExampleMain() {
	handlers.Register("greet", newGreet)
	program.Main(handlers.Default()) // does not return
}
