//go:build unix

package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/integration/ledger"
	"github.com/longshoremq/longshore/integration/natsd"
)

// A killRow is one run of the kill harness: a numbered load, consumers in processes of their own, and something that is killed.
type killRow struct {
	Fault      string         `json:"fault,omitempty"` // its id in faults.md
	Row        string         `json:"row"`
	Discipline discipline     `json:"discipline"`
	Workers    int            `json:"workers"` // in each consumer
	Rate       int            `json:"rate"`    // messages a second
	Kills      int            `json:"kills"`
	Account    ledger.Account `json:"account"`
	// PerKill is duplicates per kill; Slowest the longest exit after SIGTERM.
	PerKill float64 `json:"duplicates_per_kill"`
	Slowest float64 `json:"slowest_exit_seconds,omitempty"`
}

const (
	killWorkers = 16
	killRate    = 1000
	killDrain   = 10 * time.Second
	killAckWait = 2 * time.Second
)

// products is what we promise something about: the library, and the program with its webhook.
var products = []discipline{longshoreConsumer, wholeProgram}

// TestKillConsumers: SIGKILL of one of two consumers, again and again.
func TestKillConsumers(t *testing.T) {
	kills := lengths(4, 20)
	for _, d := range products {
		t.Run(string(d), func(t *testing.T) {
			a := runKills(t, killRow{Fault: "f02", Row: "sigkill", Discipline: d, Kills: kills}, (*field).killConsumer)
			a.mustSurvive(t, kills)
			verdict(t, "f02", fmt.Sprintf("SIGKILL of one of two consumers (%s), again and again", d), a.String())
		})
	}
	t.Run(string(ackAfter), func(t *testing.T) {
		a := runKills(t, killRow{Row: "sigkill", Discipline: ackAfter, Kills: kills}, (*field).killConsumer)
		a.mustSurvive(t, kills)
	})
}

// TestTerminateConsumers: a rolling deploy. Nothing is lost, nothing is done twice, each exit is clean and in time.
func TestTerminateConsumers(t *testing.T) {
	for _, d := range products {
		t.Run(string(d), func(t *testing.T) {
			a := runKills(t, killRow{Fault: "f04", Row: "sigterm", Discipline: d, Kills: lengths(4, 12)}, (*field).terminateConsumer)
			a.mustKeepAll(t)
			if a.Duplicates != 0 {
				t.Errorf("%d duplicates in a rolling deploy, want 0", a.Duplicates)
			}
			verdict(t, "f04", fmt.Sprintf("SIGTERM of one of two consumers (%s), again and again", d), a.String())
		})
	}
}

// TestKillServer: SIGKILL of nats-server, which comes back on its data. Acks of its last moments are forgotten by it: so duplicates are
// printed and not bounded here.
func TestKillServer(t *testing.T) {
	a := runKills(t, killRow{Fault: "f10", Row: "server_sigkill", Discipline: longshoreConsumer, Kills: lengths(2, 6)}, (*field).killServer)
	a.mustKeepAll(t)
	verdict(t, "f10", "SIGKILL of nats-server, again and again", a.String())
}

// TestHarnessSeesLoss: a consumer that acks before it handles loses what it holds when it is killed. A harness that reports nothing here
// proves nothing above.
func TestHarnessSeesLoss(t *testing.T) {
	a := runKills(t, killRow{Row: "sigkill", Discipline: ackBefore, Kills: lengths(4, 20)}, (*field).killConsumer)
	if a.Lost == 0 {
		t.Errorf("a consumer that acks before handling lost nothing over its kills: this harness cannot see loss")
	}
	if a.Unexpected != 0 {
		t.Errorf("%d messages handled that nobody sent", a.Unexpected)
	}
}

type account ledger.Account

func (a account) mustKeepAll(t *testing.T) {
	t.Helper()
	if a.Acked == 0 {
		t.Error("nothing was published: the run proves nothing")
	}
	if a.Lost != 0 || a.Unseen != 0 || a.Unexpected != 0 {
		t.Errorf("lost %d (%v), unseen %d, unexpected %d of %d", a.Lost, a.LostIDs, a.Unseen, a.Unexpected, a.Acked)
	}
}

// mustSurvive: after SIGKILLs nothing is lost, and done twice is at most what each worker had done and not acked.
func (a account) mustSurvive(t *testing.T, kills int) {
	t.Helper()
	a.mustKeepAll(t)
	if bound := kills * killWorkers; a.Duplicates > bound {
		t.Errorf("%d duplicates after %d SIGKILLs, more than one per worker and kill (%d)", a.Duplicates, kills, bound)
	}
}

// A field is a running set-up: server, consumers, load.
type field struct {
	row       killRow
	server    *natsd.Server
	js        jetstream.JetStream
	config    consumerConfig
	start     func(*testing.T) *process // one more consumer
	consumers []*process
	load      *load
}

// runKills runs a row and returns its account.
func runKills(t *testing.T, row killRow, kill func(*field, *testing.T, int)) account {
	t.Helper()
	row.Workers, row.Rate = killWorkers, killRate
	f := newField(t, row.Discipline)
	f.row = row
	f.startConsumers(t, 2)
	f.load = startLoad(t, f.server.URL(), killRate, 0)
	for i := range row.Kills {
		// A random moment, with all at work.
		for _, p := range f.consumers {
			p.await(t, "has handled a message", p.atWork)
		}
		time.Sleep(600*time.Millisecond + rand.N(600*time.Millisecond))
		kill(f, t, i)
	}
	f.load.stop()
	a := f.settle(t)
	for _, p := range f.consumers {
		if code, _ := p.terminate(t); code != 0 {
			t.Errorf("a consumer exits with %d after SIGTERM", code)
		}
	}
	f.row.Account = ledger.Account(a)
	f.row.PerKill = float64(a.Duplicates) / float64(row.Kills)
	report(f.row)
	return a
}

// newField starts a server with an empty stream.
func newField(t *testing.T, d discipline) *field {
	t.Helper()
	return fieldOn(t, natsd.Start(t), d)
}

// fieldOn makes an empty stream on a server.
func fieldOn(t *testing.T, s *natsd.Server, d discipline) *field {
	t.Helper()
	f := &field{server: s}
	f.js = connect(t, f.server.URL())
	f.createStream(t)
	f.config = consumerConfig{Discipline: d, URL: f.server.URL(), Durable: "workers", Ledger: filepath.Join(t.TempDir(), "ledger"),
		Workers: killWorkers, AckWait: killAckWait, Drain: killDrain, Ping: time.Second, Heartbeat: time.Second}
	f.start = func(t *testing.T) *process { return startProcess(t, f.config) }
	if d == wholeProgram {
		f.start = newPrograms(t, f.config).start
	}
	return f
}

func (f *field) createStream(t *testing.T) {
	t.Helper()
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: loadStream, Subjects: []string{"load.>"}, Storage: jetstream.FileStorage})
	if err != nil {
		t.Fatal(err)
	}
}

func (f *field) startConsumers(t *testing.T, n int) {
	t.Helper()
	for range n {
		f.consumers = append(f.consumers, f.start(t))
	}
	for _, p := range f.consumers {
		p.await(t, "is connected", p.up)
	}
}

func (f *field) killConsumer(t *testing.T, i int) {
	t.Helper()
	f.consumers[i%len(f.consumers)].kill()
	f.consumers[i%len(f.consumers)] = f.start(t)
}

func (f *field) terminateConsumer(t *testing.T, i int) {
	t.Helper()
	code, took := f.consumers[i%len(f.consumers)].terminate(t)
	if code != 0 || took > killDrain+5*time.Second {
		t.Errorf("SIGTERM %d: exit code %d after %v; want 0 within %v", i+1, code, took, killDrain)
	}
	f.row.Slowest = max(f.row.Slowest, took.Seconds())
	f.consumers[i%len(f.consumers)] = f.start(t)
}

func (f *field) killServer(t *testing.T, _ int) {
	t.Helper()
	f.server.Kill()
	time.Sleep(rand.N(600 * time.Millisecond))
	if err := f.server.Start(); err != nil {
		t.Fatal(err)
	}
	before := len(f.entries(t))
	eventually(t, "messages are handled again after the server's restart", func() bool { return len(f.entries(t)) > before+killRate/10 })
}

func (f *field) entries(t *testing.T) []ledger.Entry {
	t.Helper()
	es, err := ledger.Read(f.config.Ledger)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return es
}

// settle waits until every confirmed message is in the ledger and settled at the broker, or until nothing moves any more, and makes the
// account. A message that comes back is handed out before the broker calls all settled, so no duplicate is missed.
func (f *field) settle(t *testing.T) account {
	t.Helper()
	acked, sent := f.load.confirmed()
	quiet := lengths(10*time.Second, 20*time.Second)
	last, since := -1, time.Now()
	for time.Since(since) < quiet {
		b, idle := f.broker(t)
		es := f.entries(t)
		a := ledger.Settle(acked, sent, es, b)
		if idle && a.Lost == 0 && a.Unseen == 0 {
			return account(a)
		}
		if idle && f.config.Discipline == ackBefore {
			quiet = 3 * time.Second // nothing will come again; what still runs needs 600 ms
		}
		if len(es) != last {
			last, since = len(es), time.Now()
		}
		time.Sleep(50 * time.Millisecond)
	}
	b, _ := f.broker(t)
	t.Logf("nothing moved for %v; the broker says %+v", quiet, b)
	return account(ledger.Settle(acked, sent, f.entries(t), b))
}

// broker asks what the durable consumer's state is, and whether nothing is waiting or out.
func (f *field) broker(t *testing.T) (b ledger.Broker, idle bool) {
	t.Helper()
	c, err := f.js.Consumer(t.Context(), loadStream, f.config.Durable)
	if err != nil {
		t.Logf("asking for the consumer: %v", err)
		return ledger.Broker{Unsettled: 1}, false
	}
	i, err := c.Info(t.Context())
	if err != nil {
		t.Logf("asking for the consumer: %v", err)
		return ledger.Broker{Unsettled: 1}, false
	}
	b = ledger.Broker{Floor: int64(i.AckFloor.Stream), Delivered: int64(i.Delivered.Stream), Unsettled: i.NumAckPending}
	return b, i.NumPending == 0 && i.NumAckPending == 0
}

// redelivered is how many messages are out that were delivered before.
func (f *field) redelivered(t *testing.T) int {
	t.Helper()
	c, err := f.js.Consumer(t.Context(), loadStream, f.config.Durable)
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo().NumRedelivered
}
