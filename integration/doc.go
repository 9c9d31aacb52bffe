// Package integration holds the tests across packages and on real brokers. Nothing but the nested module bench imports it.
//
// What it proves:
//
//   - layers_test.go: who may import whom. Its table is the architecture.
//   - readme_test.go, programs_test.go: what README and docs/programs.md show is what compiles and runs.
//   - docfiles_test.go, index_test.go, dependencies_test.go, lines_test.go: what docs and comments list is what is there, and
//     lines have an end.
//   - kill_test.go: consumers and the broker are killed under load; what was acked to the publisher is compared with a ledger
//     that the consumers write and do not own. program_test.go has the built program in their place, and a webhook's server that
//     writes.
//   - inorder_test.go: the same in key order. The begins and ends of handler runs are stamped here, and ledger looks for
//     inversions and overlaps.
//   - faults_test.go, network_test.go: the fault table. faults.md says where each fault is proved. What is of one broker alone
//     stands in nats_*_test.go and kafka_*_test.go; system_test.go says in what they differ.
//   - letters_test.go: dead letters, whatever happens to those who write them. dlq_kill_test.go: replays that are killed.
//     pool_faults_test.go: the pool under bursts.
//   - soak_linux_test.go: many consumers and partitions for long: nothing grows. watched_linux_test.go: who looks at a process
//     cannot hurt it.
//   - fleet_linux_test.go: longshore scaler and an autoscaler choose how many processes there are.
//   - tracing_test.go: the spans of a message's whole way. scrapes_test.go: what dashboard and alerts are evaluated on.
//   - kafka_scale_test.go: members of a group come and go, and only the partitions that move stop.
//   - kafka_witness_test.go: what Kafka itself and its own tool say of our commits.
//   - exactly_once_test.go, kafka_answers_test.go: what handlers emit in transactions, whatever dies, and whichever answer is
//     lost.
//   - compose_test.go: docker-compose.yml and what it mounts. systemd_test.go: the unit.
//   - mutants_test.go: the product with one promise broken on purpose; a test has to fail for each. mutants_sim_test.go: and the
//     simulator.
//   - sim: whole consumers in virtual time, under faults that a seed chooses.
//
// What it uses: natsd and kafkad run nats-server and Apache Kafka as processes that can be killed, frozen and restarted (daemon
// is how); broker/brokertest/faultproxy is a network that can be cut; ledger does the account; autoscaler is the arithmetic of a
// HorizontalPodAutoscaler.
//
// Modules of their own, for what they need: browser (the page in a real one), inbox (on real databases), keda (its client), hpa
// (Kubernetes' calculator).
//
// In short by default (go test ./...), in full with LONGSHORE_CHAOS=1 (make chaos). What runs on Kafka wants LONGSHORE_KAFKA=1
// (make kafka, make chaos, .ci/run): it starts JVMs and takes minutes. LONGSHORE_SEED sets the seed of kills, which each row
// prints. Where a real server cannot be had the tests are skipped, or run on a fake that is named in their lines; with
// LONGSHORE_REAL=1 they fail instead. KAFKA_BROKERS names a Kafka to use.
package integration
