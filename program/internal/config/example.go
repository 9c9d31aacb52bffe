package config

import _ "embed"

//go:embed example.nats.yaml
var exampleNATS string

//go:embed example.kafka.yaml
var exampleKafka string

// Examples are complete, commented files that run accepts as they are, by broker.
var Examples = map[string]string{"nats": exampleNATS, "kafka": exampleKafka}
