//go:build unix

package integration

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker/brokertest/faultproxy"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/kafkad"
	"github.com/longshoremq/longshore/integration/ledger"
)

// A system is a real broker with one stream or topic for the load, and the durable or group that consumes it.
type system interface {
	// broker names it in what is printed.
	broker() string
	// configure tells a consumer where the load is.
	configure(*consumerConfig)
	// publisher returns what stores the messages of a load.
	publisher(t *testing.T) publish
	// progress is what the broker says of the consumers.
	progress(t *testing.T) progress
	// lettersTo makes a place for dead letters and returns its topic; letters are those that are there.
	lettersTo(t *testing.T) string
	letters(t *testing.T, topic string) []letter
	// audit asks witnesses that are not us whether the product kept its books in order, and returns what moved back. It is called at
	// the end, when all is handled.
	audit(t *testing.T) (rewinds []string)
	// toolAgrees asks the broker's own command whether everything is committed, which takes a second or two.
	toolAgrees(t *testing.T)
	// kill sends SIGKILL to the server; restart starts it on its data.
	kill()
	restart() error
	// proxy is a way to the server that can be broken, and its address as a consumer's config names it.
	proxy(t *testing.T) (*faultproxy.Proxy, string)
}

// An outgoing message of a load.
type outgoing struct {
	load string // its name
	id   int64  // its number
	key  string // empty: none
	body []byte
}

// publish stores a message, waits for the confirmation, and returns where it stands. An error means: unknown.
type publish func(ctx context.Context, m outgoing) (seq int64, err error)

type progress struct {
	ledger.Broker
	// idle: nothing waits, and nothing is out.
	idle bool
	// settled: everything that was handed out is settled for good.
	settled bool
}

// commitInterval is that of the product's consumers on Kafka.
const commitInterval = 20 * time.Millisecond

// A kind is a kind of broker.
type kind struct {
	name string
	// start makes a system whose server the test leaves alone, own one whose server it may kill.
	start, own func(*testing.T) system
	// products is what we promise something about. byHand is correct without us, naive is known to lose.
	products []discipline
	byHand   []discipline
	naive    discipline
	// order is what the consumers keep; empty: none.
	order consumer.Order
	// seeds is how often kills run in full.
	seeds int
	// The ids of faults that differ by kind.
	sigkill, serverKill string
}

var kinds = []kind{
	{name: "nats", start: startNATS, own: startNATS, products: []discipline{longshoreConsumer, wholeProgram},
		byHand: []discipline{ackAfter}, naive: ackBefore,
		seeds: 1, sigkill: "f02", serverKill: "f10"},
	{name: "kafka", start: startKafka, own: ownKafka, products: []discipline{longshoreConsumer, wholeProgram}, naive: commitEach,
		seeds: 3, sigkill: "f01", serverKill: "f09"},
}

// perKill is how many messages one killed consumer, which had so many a second, may leave to be done again: at most one for each
// worker, which had done it and not acked it; and on Kafka what was acked and not yet committed.
func (k kind) perKill(rate int) int {
	if k.name == "kafka" {
		return killWorkers + int(commitInterval.Seconds()*float64(rate))
	}
	return killWorkers
}

// onEach runs a test on each kind of broker.
func onEach(t *testing.T, test func(*testing.T, kind)) {
	sideBySide(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			sideBySide(t)
			test(t, k)
		})
	}
}

// sideBySide lets a row run beside others: it has a server and processes of its own, and mostly waits for them. Rows on Apache
// Kafka share one broker, which some of them hurt, and so they take turns, and so do all rows of a run that has them.
func sideBySide(t *testing.T) {
	t.Helper()
	if !onRealKafka() {
		t.Parallel()
	}
}

// variant skips what repeats a row in another way, unless real brokers are demanded, as CI does: who tries the tests for the
// first time need not wait for it.
func variant(t *testing.T) {
	t.Helper()
	if os.Getenv("LONGSHORE_REAL") == "" && !onRealKafka() {
		t.Skip("a variant of another row, which runs with LONGSHORE_REAL=1")
	}
}

// onRealKafka says whether the rows on Kafka run on Apache Kafka: it starts JVMs and takes minutes.
func onRealKafka() bool {
	return os.Getenv("LONGSHORE_KAFKA") != "" || os.Getenv("KAFKA_BROKERS") != ""
}

// needsKafka skips what runs on Apache Kafka unless it is asked for.
func needsKafka(t *testing.T) {
	t.Helper()
	if !onRealKafka() {
		t.Skip("LONGSHORE_KAFKA=1, or KAFKA_BROKERS, runs the rows on Kafka")
	}
}

// tests ends what tests share, before the hunt for leaks.
type tests struct{ m *testing.M }

func (s tests) Run() int {
	defer kafkad.StopShared()
	return s.m.Run()
}
