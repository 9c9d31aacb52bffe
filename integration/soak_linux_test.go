package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/integration/kafkad"
)

// soakEnv makes the test binary a process of many consumers that is looked at for long: its value is a soakConfig.
const soakEnv = "LONGSHORE_TEST_SOAK"

func init() { children[soakEnv] = soakMain }

type soakConfig struct {
	Brokers           []string
	Topic, Letters    string
	Group, Membership string
	Consumers         int
	Messages          int64         // how many there will be at most
	Every             time.Duration // how often a sample is taken
	Descriptors       uint64        // how many the process may have open; 0: as many as it likes
}

// A sample is what the process has at one moment, right after a collection of garbage.
type sample struct {
	Heap        uint64 `json:"heap"`
	Goroutines  int    `json:"goroutines"`
	Descriptors int    `json:"descriptors"`
	Done        int64  `json:"done"`
}

// TestSoak: a process with many consumers and many partitions, of whose messages one in a hundred fails until it is a dead
// letter, has after a long time what it had at first: memory, goroutines, open files. And one that may open next to nothing has
// 1,000 partitions.
func TestSoak(t *testing.T) {
	needsKafka(t)
	t.Run("20 consumers", func(t *testing.T) {
		s := newSoak(t, soakConfig{Consumers: 20}, lengths(1000, 5000), lengths(24*time.Second, time.Hour))
		s.run(t)
		s.mustStayFlat(t)
	})
	t.Run("64 descriptors", func(t *testing.T) {
		s := newSoak(t, soakConfig{Consumers: 1, Descriptors: 64}, 1000, 5*time.Second)
		s.run(t)
		most := slices.MaxFunc(s.samples, func(a, b sample) int { return cmp.Compare(a.Descriptors, b.Descriptors) })
		if most.Descriptors > 40 {
			t.Errorf("%d descriptors are open, of which some 20 should be connections", most.Descriptors)
		}
		most = slices.MaxFunc(s.samples, func(a, b sample) int { return cmp.Compare(a.Goroutines, b.Goroutines) })
		if most.Goroutines > soakPartitions/2 {
			t.Errorf("%d goroutines for %d partitions", most.Goroutines, soakPartitions)
		}
	})
}

const soakPartitions = 1000

// A soak is such a process and its load.
type soak struct {
	cluster *kafkaSystem
	c       soakConfig
	rate    int
	least   int64 // how many messages there are at least
	sent    int64
	process *process
	samples []sample
}

func newSoak(t *testing.T, c soakConfig, rate int, length time.Duration) *soak {
	t.Helper()
	on := lateKafkaSystem(t, kafkad.Shared(t))
	on.createTopic(t, soakPartitions)
	c.Brokers, c.Topic, c.Letters = on.cluster.Brokers(), on.topic, on.lettersTo(t)
	c.Group, c.Membership = on.group, membership()
	least := int64(float64(rate) * length.Seconds())
	c.Messages = 4 * least
	c.Every = max(length/120, 200*time.Millisecond)
	return &soak{cluster: on, c: c, rate: rate, least: least}
}

// run publishes the load, and waits until everything is settled and each failing message is in the dead letters.
func (s *soak) run(t *testing.T) {
	t.Helper()
	arg, err := json.Marshal(s.c)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.process = startCommand(t, exec.Command(exe), soakEnv+"="+string(arg))
	s.process.says(t, "up", s.c.Consumers)
	s.load(t)
	s.process.await(t, "has handled everything", func() bool { return s.last(t).Done == s.sent })
	s.process.await(t, "has everything settled", func() bool { return s.cluster.progress(t).settled })
	s.samples = s.taken(t)
	if code, _ := s.process.terminate(t); code != 0 {
		t.Errorf("exit code %d after SIGTERM: %s", code, s.process.err.tail())
	}
	letters := map[int64]bool{}
	for _, l := range s.cluster.letters(t, s.c.Letters) {
		letters[l.ID] = true
	}
	if want := (s.sent + soakFailing - 1) / soakFailing; int64(len(letters)) != want {
		t.Errorf("%d dead letters, want %d", len(letters), want)
	}
	first, last := s.samples[0], s.samples[len(s.samples)-1]
	report(map[string]any{"row": "soak", "consumers": s.c.Consumers, "messages": s.sent, "letters": len(letters), "first": first,
		"last": last})
}

// load publishes the rate until there is enough, spread over all partitions, and waits until each message is confirmed.
func (s *soak) load(t *testing.T) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.c.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var failed atomic.Pointer[error]
	confirmed := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Store(&err)
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !s.enough(t) && !s.process.ended(); <-tick.C {
		due := min(int64(time.Since(began).Seconds()*float64(s.rate)), s.c.Messages)
		for ; s.sent < due; s.sent++ {
			client.Produce(t.Context(), &kgo.Record{Topic: s.c.Topic, Partition: int32(s.sent * 7919 % soakPartitions),
				Value: fmt.Appendf(nil, "%-100d", s.sent)}, confirmed)
		}
	}
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := failed.Load(); err != nil {
		t.Fatalf("producing: %v", *err)
	}
}

// enough: where all is slow, the process begins late, and tells of itself seldom.
func (s *soak) enough(t *testing.T) bool {
	return s.sent >= s.least && (s.sent >= s.c.Messages || len(s.underLoad(s.taken(t))) >= 2*fewestSamples)
}

// fewestSamples tell whether what they are of grows.
const fewestSamples = 16

// underLoad is what was taken while there was work.
func (s *soak) underLoad(all []sample) []sample {
	return slices.DeleteFunc(all, func(one sample) bool { return one.Done == 0 || one.Done == s.sent })
}

// taken is what the process has told of itself so far.
func (s *soak) taken(t *testing.T) (all []sample) {
	t.Helper()
	for _, line := range s.process.out.all() {
		text, ok := strings.CutPrefix(line, "sample ")
		if !ok {
			continue
		}
		var one sample
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

func (s *soak) last(t *testing.T) sample {
	t.Helper()
	if all := s.taken(t); len(all) > 0 {
		return all[len(all)-1]
	}
	return sample{}
}

// mustStayFlat holds the last quarter of the time under load against the second. What a process grows to in the first is its own.
func (s *soak) mustStayFlat(t *testing.T) {
	t.Helper()
	under := s.underLoad(slices.Clone(s.samples))
	if len(under) < fewestSamples {
		t.Fatalf("%d samples under load: the run proves nothing", len(under))
	}
	quarter := len(under) / 4
	early, late := under[quarter:2*quarter], under[len(under)-quarter:]
	for _, f := range []struct {
		what string
		of   func(sample) float64
		more float64 // what differs from one moment to the next
	}{
		{"bytes of heap", func(one sample) float64 { return float64(one.Heap) }, 6 << 20},
		{"goroutines", func(one sample) float64 { return float64(one.Goroutines) }, 40},
		{"descriptors", func(one sample) float64 { return float64(one.Descriptors) }, 12},
	} {
		was, is := middle(early, f.of), middle(late, f.of)
		t.Logf("%s: %.0f, then %.0f", f.what, was, is)
		if is > 1.1*was+f.more {
			t.Errorf("%s grow: %.0f in the second quarter, %.0f in the last", f.what, was, is)
		}
	}
}

func middle(all []sample, of func(sample) float64) float64 {
	values := make([]float64, len(all))
	for i, one := range all {
		values[i] = of(one)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// soakFailing: the handler of each number that it divides always fails.
const soakFailing = 100

// soakMain runs the consumers, and tells of itself again and again.
func soakMain(arg string) int {
	var c soakConfig
	if err := json.Unmarshal([]byte(arg), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if c.Descriptors > 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: c.Descriptors, Max: c.Descriptors}); err != nil {
			fmt.Fprintln(os.Stderr, "limiting descriptors:", err)
			return 2
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	h := &soaked{seen: make([]atomic.Uint64, c.Messages/64+1)}
	at := kafkabroker.Connection{Brokers: c.Brokers}
	letters, err := kafkabroker.NewPublisher(kafkabroker.PublisherConfig{Connection: at})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	errs := make([]error, c.Consumers)
	var all, telling sync.WaitGroup
	for i := range c.Consumers {
		all.Go(func() { errs[i] = h.consume(ctx, c, at, letters) })
	}
	over, end := context.WithCancel(context.Background())
	telling.Go(func() { h.tell(over, c.Every) })
	all.Wait()
	end()
	telling.Wait()
	if err := errors.Join(append(errs, letters.Close(context.Background()))...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// soaked is what the handlers of all consumers have seen.
type soaked struct {
	seen []atomic.Uint64 // a bit for each number
	done atomic.Int64    // how many bits are set
}

func (h *soaked) consume(ctx context.Context, c soakConfig, at kafkabroker.Connection, letters *kafkabroker.Publisher) error {
	source, err := kafkabroker.NewSource(kafkabroker.Config{Connection: at, Group: c.Group, Topics: []string{c.Topic},
		Membership: c.Membership})
	if err != nil {
		return err
	}
	k, err := consumer.New(consumer.Config{Source: source, Handler: h.handle, Pool: consumer.Pool{Min: 1, Max: 16},
		Budget: broker.Budget{Messages: 1024, Bytes: 4 << 20},
		Retry: consumer.Retry{MaxAttempts: 2, Backoff: consumer.Backoff{Initial: 50 * time.Millisecond,
			Max: 50 * time.Millisecond}},
		DeadLetter: &consumer.DeadLetter{Publisher: letters, Topic: c.Letters},
	})
	if err != nil {
		return err
	}
	say("up")
	return k.Run(ctx)
}

func (h *soaked) handle(_ context.Context, m *consumer.Message) error {
	n, err := strconv.ParseInt(strings.TrimSpace(string(m.Value)), 10, 64)
	if err != nil {
		return err
	}
	if bit := uint64(1) << (n % 64); h.seen[n/64].Or(bit)&bit == 0 {
		h.done.Add(1)
	}
	if n%soakFailing == 0 {
		return errors.New("this one always fails")
	}
	return nil
}

// tell prints a sample each time.
func (h *soaked) tell(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		text, err := json.Marshal(h.sample())
		if err != nil {
			panic(err) // numbers
		}
		say("sample", string(text))
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (h *soaked) sample() sample {
	done := h.done.Load()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err) // where there are no descriptors left, the test is to fail
	}
	return sample{Heap: m.HeapAlloc, Goroutines: runtime.NumGoroutine(), Descriptors: len(open), Done: done}
}
