package natsbroker_test

import (
	"reflect"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/natsbroker"
)

// What a source says of itself has nothing of a login in it.
func TestDescribe(t *testing.T) {
	core, err := natsbroker.NewCoreSource(natsbroker.CoreConfig{
		Connection: natsbroker.Connection{URLs: []string{"127.0.0.1:4333"}}, Subjects: []string{"a.*"},
		Queue: "q"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := natsbroker.NewSource(natsbroker.Config{
		Connection: natsbroker.Connection{URLs: []string{"nats://user:pw@[::1]:4444", "nats://user:pw@127.0.0.1:1"}},
		Stream:     "S", Consumer: "d", Subjects: []string{"b.>"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of   broker.Describer
		want broker.Description
	}{
		{core, broker.Description{System: "nats", Group: "q", Patterns: []string{"a.*"}, Server: "127.0.0.1", Port: 4333}},
		{s, broker.Description{System: "nats", Group: "d", Stream: "S", Patterns: []string{"b.>"}, Server: "::1", Port: 4444}},
	} {
		if got := c.of.Describe(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}
