package config_test

import (
	"encoding"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/internal/conftag"
	"github.com/longshoremq/longshore/program/internal/config"
)

const (
	inGo = "only programs in Go need it"
	made = "the program makes it of the file"
)

// sections are the Configs, the sections of the file that stand for them, and why a field has no key there.
var sections = []struct {
	config, section any
	without         map[string]string
}{
	{kafkabroker.Config{}, config.Kafka{}, map[string]string{
		"DialTimeout": inGo, "RequestTimeout": inGo, "Poll": inGo, "FetchBytes": inGo, "PartitionBytes": inGo, "MaxWait": inGo,
		"Window":         inGo,
		"MaxOutputBytes": "max_publish_bytes",
		"Uncommitted":    "isolation says it in Kafka's words", "SkipUndecodable": "on_bad_batch says it, and what else there is",
	}},
	{kafkabroker.PublisherConfig{}, config.Kafka{}, map[string]string{
		"DialTimeout": inGo, "RequestTimeout": inGo, "MaxMessageBytes": "max_publish_bytes, in the section of the source",
	}},
	{natsbroker.Config{}, config.NATS{}, map[string]string{
		"Name": inGo, "DialTimeout": inGo, "ReconnectWait": inGo, "MaxReconnectWait": inGo, "PingInterval": inGo, "Heartbeat": inGo,
		"Poll": inGo, "Finished": inGo, "Share": "shared of a limit",
	}},
	{natsbroker.CoreConfig{}, config.NATSCore{}, map[string]string{
		"Name": inGo, "DialTimeout": inGo, "ReconnectWait": inGo, "MaxReconnectWait": inGo, "PingInterval": inGo,
	}},
	{consumer.Config{}, config.Consumer{}, map[string]string{
		"Name": "it is the section's", "Around": made, "Handler": "routes", "Chunk": inGo, "CancelGrace": made, "CloseTimeout": made,
		"Logger": made, "Observers": made,
		"Sources.Source": "nats, nats_core and kafka", "Strict": "priority.mode", "Priority.Of": "priority.header",
		"Pool.Gauge":             "pool.mind",
		"Retry.Topics.Publisher": made, "Retry.Topics.Source": made, "DeadLetter.Publisher": made,
		"Output": "publish has a publisher of its own", "DeadLetter.HandlerOf": made,
	}},
}

// TestEveryFieldIsSaid: what can be set in Go has a key of the file, or there is a reason why not; and the other way round.
func TestEveryFieldIsSaid(t *testing.T) {
	for _, s := range sections {
		config, section := reflect.TypeOf(s.config), reflect.TypeOf(s.section)
		without := maps.Clone(s.without)
		for _, field := range fieldsOf(t, "", config) {
			key, ok := conftag.Name(section, broker.Field(strings.Replace(field, "Retry.Topics.Steps", "Retry.Topics", 1)))
			switch {
			case ok && without[field] != "":
				t.Errorf("%v.%s is %s of the file, and there is a reason why it has no key: %s", config, field, key, without[field])
			case !ok && without[field] == "":
				t.Errorf("%v.%s has no key of the file: give it a yaml tag, or a reason here", config, field)
			}
			delete(without, field)
		}
		for _, field := range slices.Sorted(maps.Keys(without)) {
			t.Errorf("%v has no field %s any more", config, field)
		}
	}
}

// fieldsOf are the paths of all exported fields of a Config that are no sections of others.
func fieldsOf(t *testing.T, at string, c reflect.Type) (all []string) {
	for c.Kind() == reflect.Pointer || c.Kind() == reflect.Slice {
		c = c.Elem()
	}
	for i := range c.NumField() {
		f := c.Field(i)
		if !f.IsExported() {
			continue
		}
		if f.Anonymous {
			all = append(all, fieldsOf(t, at, f.Type)...)
			continue
		}
		if _, ok := f.Tag.Lookup("yaml"); !ok {
			t.Errorf("%v.%s has no yaml tag: it has the key of the file, or -", c, f.Name)
		}
		if path := string(conftag.Join(broker.Field(at), f.Name)); isSection(f.Type) {
			all = append(all, fieldsOf(t, path, f.Type)...)
		} else if path != "TLS.Enabled" { // to have the section tls is to enable it
			all = append(all, path)
		}
	}
	return all
}

// isSection says whether a field is a struct of longshore's with settings of its own.
func isSection(f reflect.Type) bool {
	for f.Kind() == reflect.Pointer || f.Kind() == reflect.Slice {
		f = f.Elem()
	}
	return f.Kind() == reflect.Struct && strings.Contains(f.PkgPath(), "longshore") &&
		!reflect.PointerTo(f).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
