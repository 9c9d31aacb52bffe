//go:build unix

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/broker/kafkabroker"
	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/longshoremq/longshore/integration/kafkad"
)

// A graveyard is a broker with dead letters, as numbers, that came from a topic that is empty.
type graveyard struct {
	config   consumerConfig
	dead, to string
	letters  int
	store    deadletters.Store
	// records of the journal so far, and where to look for the next.
	records, seen int64
	step          string // of the last one
	// begins hears at once of each batch that is begun; nil: the journal is looked at again and again.
	begins chan struct{}
}

// onGraveyards runs a test on each broker. Kafka is the in-process fake where the real one was not asked for.
func onGraveyards(t *testing.T, letters int, test func(t *testing.T, g *graveyard)) {
	sideBySide(t)
	t.Run("nats", func(t *testing.T) {
		sideBySide(t)
		s := startNATS(t).(*natsSystem)
		g := newGraveyard(t, s, letters, "load.1")
		g.listen(t, s.js.Conn())
		test(t, g)
	})
	t.Run("kafka", func(t *testing.T) {
		variant(t)
		sideBySide(t)
		var s *kafkaSystem
		if !onRealKafka() {
			s = newKafkaSystem(t, kafkad.Fake(t))
		} else {
			s = startKafka(t).(*kafkaSystem)
		}
		test(t, newGraveyard(t, s, letters, s.topic))
	})
}

func newGraveyard(t *testing.T, s system, letters int, to string) *graveyard {
	t.Helper()
	g := &graveyard{letters: letters, to: to, dead: s.lettersTo(t)}
	s.configure(&g.config)
	g.config.LettersURL = g.config.URL
	p, err := newPublisher(g.config, patience) // what is prepared may take its time
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(t.Context()) })
	if g.config.Broker == "kafka" {
		v, err := kafkabroker.NewLogView(kafkabroker.LogViewConfig{Connection: kafkabroker.Connection{Brokers: []string{g.config.URL}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		g.store = v
	} else {
		v, err := natsbroker.NewLogView(natsbroker.LogViewConfig{Connection: natsbroker.Connection{URLs: []string{g.config.URL}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		g.store = v
	}
	for n := 0; n < letters; n += 500 {
		var ms []broker.Outgoing
		for i := n; i < min(n+500, letters); i++ {
			ms = append(ms, broker.Outgoing{Topic: g.dead, Value: []byte(strconv.Itoa(i)), ID: "letter-" + strconv.Itoa(i),
				Headers: []broker.Header{{Key: broker.HeaderOriginalTopic, Value: []byte(to)},
					{Key: broker.HeaderErrorClass, Value: []byte([]string{"error", "timeout"}[i%2])}}})
		}
		if err := p.Publish(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// listen hears of the batches that replays begin.
func (g *graveyard) listen(t *testing.T, nc *nats.Conn) {
	t.Helper()
	g.begins = make(chan struct{}, 1000)
	_, err := nc.Subscribe(deadletters.JournalTopic(g.dead), func(m *nats.Msg) {
		var r struct{ Step string }
		if json.Unmarshal(m.Data, &r) == nil && r.Step == "begin" {
			select {
			case g.begins <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitBegun waits until a replay has begun its second batch, or more, or has ended.
func (g *graveyard) awaitBegun(t *testing.T, p *process, before int64, inBatch bool) {
	t.Helper()
	if g.begins == nil || !inBatch {
		eventually(t, "a batch is begun", func() bool {
			n := g.written(t)
			return n > before+2 && (!inBatch || g.step == "begin") || p.ended()
		})
		return
	}
	for len(g.begins) > 0 { // of the replay before
		<-g.begins
	}
	for range 2 {
		select {
		case <-g.begins:
		case <-p.done:
		case <-time.After(patience):
			t.Fatal("no batch is begun")
		}
	}
}

// args are the command's, with where the dead letters are.
func (g *graveyard) args(more ...string) []string {
	at := []string{"--url", g.config.URL, "--subject", g.dead}
	if g.config.Broker == "kafka" {
		at = []string{"--brokers", g.config.URL, "--topic", g.dead}
	}
	return append(append([]string{"dlq", "replay", "--json", "--to", g.to}, at...), more...)
}

// arrived is how often each number is where it came from, and how many there are in all.
func (g *graveyard) arrived(t *testing.T) (copies map[int]int, all int) {
	t.Helper()
	copies = map[int]int{}
	_, err := g.store.Scan(t.Context(), broker.Scan{Topic: g.to}, func(m *broker.Message) error {
		n, err := strconv.Atoi(string(m.Value))
		copies[n]++
		all++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return copies, all
}

// written is how many records the journal has.
func (g *graveyard) written(t *testing.T) int64 {
	t.Helper()
	_, err := g.store.Scan(t.Context(), broker.Scan{Topic: deadletters.JournalTopic(g.dead), Offset: g.seen},
		func(m *broker.Message) error {
			var r struct{ Step string }
			err := json.Unmarshal(m.Value, &r)
			g.records, g.seen, g.step = g.records+1, m.Offset+1, r.Step
			return err
		})
	if err != nil && !errors.Is(err, broker.ErrNoTopic) {
		t.Fatal(err)
	}
	return g.records
}

// TestKillReplay: SIGKILL of a replay in the middle, again and again. Each letter is replayed, none is gone, and none is there
// twice without its being said.
func TestKillReplay(t *testing.T) {
	path, err := buildProgram()
	if err != nil {
		t.Fatal(err)
	}
	kills, letters := lengths(4, 12), lengths(4000, 12000)
	onGraveyards(t, letters, func(t *testing.T, g *graveyard) {
		middle, open, done := 0, 0, 0
		for ; done < kills || open == 0 && done < 6*kills; done++ {
			before, inBatch := g.written(t), done%2 == 0
			// Not as fast as it can: there is time to kill it in the middle also where this test gets no processor.
			p := startCommand(t, exec.Command(path, g.args("--rate", "300")...))
			g.awaitBegun(t, p, before, inBatch)
			if !inBatch {
				time.Sleep(rand.N(21 * time.Millisecond))
			}
			if !p.ended() {
				middle++
			}
			p.kill()
			if p.err.contains("panic") || p.err.contains("DATA RACE") {
				t.Fatalf("kill %d: %s", done, p.err.tail())
			}
			if g.written(t); g.step == "begin" {
				open++
			}
		}
		if _, before := g.arrived(t); middle < done || before >= letters || open == 0 {
			t.Errorf("%d of %d kills were in the middle, %d left a batch begun, %d of %d letters had arrived", middle, done, open, before,
				letters)
		}
		last := startCommand(t, exec.Command(path, g.args("--rate", "0")...))
		if code := last.exit(t); code != 0 {
			t.Fatalf("exit code %d: %s", code, last.err.tail())
		}
		g.audit(t, fmt.Sprintf("%d kills, %d left a batch begun", done, open), last)
	})
}

// audit holds what arrived against what was said.
func (g *graveyard) audit(t *testing.T, row string, last *process) {
	t.Helper()
	var said struct {
		Replayed     int      `json:"replayed"`
		Found        []string `json:"found_arrived"`
		Absent       []string `json:"found_absent"`
		PerhapsTwice []string `json:"perhaps_twice"`
	}
	if err := json.Unmarshal([]byte(last.out.tail()), &said); err != nil {
		t.Fatalf("the summary: %v\n%s", err, last.out.tail())
	}
	letters, err := deadletters.New(deadletters.Config{Topic: g.dead, Store: g.store})
	if err != nil {
		t.Fatal(err)
	}
	named := map[int]bool{}
	n := 0
	err = letters.List(t.Context(), deadletters.Filter{}, func(l *deadletters.Letter) error {
		i, err := strconv.Atoi(string(l.Message.Value))
		if n++; l.State != deadletters.Replayed {
			err = errors.Join(err, fmt.Errorf("letter %d is %s at the end", i, l.State))
		}
		named[i] = l.PerhapsTwice
		return err
	})
	if err != nil || n != g.letters {
		t.Errorf("%d letters are listed, want %d: %v", n, g.letters, err)
	}
	copies, all := g.arrived(t)
	unsaid := 0
	for i := range g.letters {
		switch {
		case copies[i] == 0:
			t.Errorf("letter %d is gone", i)
		case copies[i] > 1 && !named[i]:
			unsaid++
		}
	}
	if unsaid > 0 {
		t.Errorf("%d letters are there twice, and nobody said so", unsaid)
	}
	report(struct {
		Row     string `json:"row"`
		Broker  string `json:"broker"`
		Kills   string `json:"what"`
		Letters int    `json:"letters"`
		Arrived int    `json:"arrived"`
		Last    int    `json:"replayed_by_the_last"`
		Found   int    `json:"found_arrived_by_the_last"`
		Absent  int    `json:"found_absent_by_the_last"`
		Twice   int    `json:"said_perhaps_twice"`
		Unsaid  int    `json:"twice_unsaid"`
	}{"dlq_replay_sigkill", g.config.Broker, row, g.letters, all, said.Replayed, len(said.Found), len(said.Absent),
		len(said.PerhapsTwice), unsaid})
}
