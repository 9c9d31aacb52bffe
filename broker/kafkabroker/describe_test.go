package kafkabroker_test

import (
	"reflect"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
)

func TestDescribe(t *testing.T) {
	s, err := kafkabroker.NewSource(kafkabroker.Config{
		Connection: kafkabroker.Connection{Brokers: []string{"kafka-1:9093", "kafka-2:9093"}}, Group: "g", Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	want := broker.Description{System: "kafka", Group: "g", Server: "kafka-1", Port: 9093}
	if got := s.Describe(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
