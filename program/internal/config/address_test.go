package config_test

import (
	"slices"
	"testing"

	"github.com/longshoremq/longshore/program/internal/config"
)

// TestAddressesOfOneVariable: one variable may name several brokers or servers, and a comma in a login is none between two.
func TestAddressesOfOneVariable(t *testing.T) {
	env := map[string]string{
		"KAFKA_BROKERS": "a:9092, b:9092,c:9092", "NATS_URLS": "nats://u:p,w@a:4222,nats://u:p,w@b:4222",
	}
	d := config.Parse("c.yaml", []byte(`consumers:
  k:
    source: {kafka: {brokers: ["${KAFKA_BROKERS}"], topics: [t], group: g}}
    routes: [{handler: log}]
  n:
    source: {nats: {urls: ["${NATS_URLS}"], stream: S, durable: d, plaintext_auth: true}}
    routes: [{handler: log}]
`), func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
	brokers, urls := d.File.Consumers["k"].Source.Kafka.Brokers, d.File.Consumers["n"].Source.NATS.URLs
	if want := []string{"a:9092", "b:9092", "c:9092"}; !slices.Equal(brokers, want) {
		t.Errorf("brokers are %q, want %q", brokers, want)
	}
	if want := []string{"nats://u:p,w@a:4222", "nats://u:p,w@b:4222"}; !slices.Equal(urls, want) {
		t.Errorf("urls are %q, want %q", urls, want)
	}
	env["KAFKA_BROKERS"] = "a:9092,"
	d = config.Parse("c.yaml", []byte(`consumers:
  k: {source: {kafka: {brokers: ["${KAFKA_BROKERS}"], topics: [t], group: g}}, routes: [{handler: log}]}
`), func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if d.Err() == nil {
		t.Error("an address that is empty is taken")
	}
}
