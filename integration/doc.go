// Package integration holds the tests across packages and on real brokers. Nothing but the nested module bench imports it.
//
// What it proves:
//
//   - layers_test.go: who may import whom. Its table is the architecture.
//   - readme_test.go: what README shows is what compiles and runs.
//   - kill_test.go: consumers and the broker are killed under load; what was acked to the publisher is compared with a ledger that
//     the consumers write and do not own. program_test.go has the built program in their place, and a webhook's server that writes.
//   - faults_test.go, network_test.go: the fault table. faults.md says where each fault is proved.
//   - mutants_test.go: the product with one promise broken on purpose; a test has to fail for each.
//
// What it uses: natsd and kafkad run nats-server and Apache Kafka as processes that can be killed, frozen and restarted (daemon is how);
// faultproxy is a network that can be cut; ledger does the account.
//
// In short by default (go test ./...), in full with LONGSHORE_CHAOS=1 (make chaos). Where a real server cannot be built the tests are
// skipped; with LONGSHORE_REAL=1 they fail instead.
package integration
