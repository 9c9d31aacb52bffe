# `make` lists the targets. CI runs .ci/run, which is `make ci`.
GO ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 30s
SEEDS ?= 10000
FROM ?= 0

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## watch longshore work on an embedded JetStream
	$(GO) run ./cmd/longshore demo

.PHONY: test
test: ## everything a change must pass at once: all packages, short kill loops
	$(GO) test ./...

.PHONY: race
race: ## all packages with the race detector, in random order
	$(GO) test -race -shuffle=on ./...

.PHONY: lint
lint: ## gofmt, vet, staticcheck; and golangci-lint where it is installed
	@files=$$(gofmt -l .); test -z "$$files" || { echo "gofmt: $$files"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	@if command -v golangci-lint >/dev/null; then golangci-lint run; else echo "golangci-lint is not installed: skipped"; fi

.PHONY: conformance
conformance: ## the conformance suite with the race detector, ten times: in memory, on nats-server, on a fake of Kafka
	for broker in mem nats kafka; do $(GO) test -race -count=10 -timeout=120m -run 'TestConformance$$' ./broker/$${broker}broker || exit 1; done

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (30s)
	FUZZTIME=$(FUZZTIME) .ci/fuzz

.PHONY: integration
integration: ## kill loops and faults on a real nats-server, in short
	LONGSHORE_REAL=1 $(GO) test -count=1 -v ./integration/...

.PHONY: chaos
chaos: ## kill loops, faults and mutants in full, on nats-server and Apache Kafka: 20 SIGKILLs, 12 SIGTERMs, 6 of the broker, an hour of load (about two hours)
	LONGSHORE_REAL=1 LONGSHORE_CHAOS=1 LONGSHORE_KAFKA=1 $(GO) test -count=1 -v -timeout=240m ./integration/...

.PHONY: kafka
kafka: ## the tests of the Kafka adapter, those on Apache Kafka too (KAFKA_BROKERS, or fetched with Maven)
	LONGSHORE_KAFKA=1 $(GO) test -race -count=1 -timeout=20m ./broker/kafkabroker ./integration/kafkad
	LONGSHORE_KAFKA=1 $(GO) test -race -count=1 -timeout=20m -v -run '/kafka|TestScaleMembers|TestExactlyOnce|TestLostAnswers' ./integration

.PHONY: sim
sim: ## whole consumers in virtual time under SEEDS (10000) schedules of faults in each world, from seed FROM (0: new ones), on all cores
	$(GO) test -count=1 -timeout=0 -v -run '^TestExplore$$' ./integration/sim -sim.explore=$(SEEDS) -sim.from=$(FROM)

.PHONY: bench
bench: ## figures beside other systems, in one run each: name value target ok|short
	cd bench && $(GO) run .

.PHONY: scenarios
scenarios: ## the pool's load scenarios, as a table, beside the best fixed size, Little's law and AIMD (some minutes)
	LONGSHORE_SCENARIOS=1 $(GO) test -count=1 -timeout=60m -run Scenarios -v ./pool

.PHONY: browser
browser: ## the page of the admin server in a real browser: Chromium, driven by a test; axe-core
	.ci/browser

.PHONY: pictures
pictures: ## the pictures of the page in the docs, taken anew
	.ci/browser -run Pictures -pictures "$(CURDIR)/docs/pictures"

.PHONY: manifests
manifests: ## what deploys it: the alerts by promtool, the chart by helm and by the schemas of Kubernetes, without a cluster
	.ci/manifests

.PHONY: site
site: ## the site of the docs, with each link checked, into build/site
	SITE=build/site .ci/site

.PHONY: autoscalers
autoscalers: ## the scaler asked by KEDA's own client, and what its tests take for Kubernetes held against Kubernetes' calculator
	cd integration/keda && $(GO) test -count=1 .
	cd integration/hpa && $(GO) test -count=1 .

.PHONY: up
up: ## Kafka and NATS with JetStream in Docker, on 127.0.0.1:9092 and 127.0.0.1:4222
	docker compose up -d --wait

.PHONY: observe
observe: ## up, with Prometheus, Grafana (127.0.0.1:3000) and a Kafka UI (127.0.0.1:8081)
	docker compose --profile observe up -d --wait

.PHONY: down
down: ## stop what up and observe started; their data stay in volumes
	docker compose --profile observe down

.PHONY: ci
ci: ## what CI runs
	.ci/run
