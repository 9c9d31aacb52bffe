package config

import _ "embed"

//go:embed example.nats.yaml
var exampleNATS string

// Examples are complete, commented files that run accepts as they are, by broker.
var Examples = map[string]string{"nats": exampleNATS}
