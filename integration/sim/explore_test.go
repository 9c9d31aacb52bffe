package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

var (
	many    = flag.Uint64("sim.explore", 0, "run so many seeds in all worlds, on all cores (make sim)")
	long    = flag.Duration("sim.for", 0, "or run new seeds for so long")
	shrinks = flag.Duration("sim.shrink", 45*time.Second, "how long to make a finding small")
	one     = flag.String("sim.schedule", "", "a file with a schedule, to run again and again")
	times   = flag.Int("sim.times", 5, "how often to run the schedule, and each that is kept")
)

// TestChild is what TestExplore starts.
func TestChild(t *testing.T) {
	if !IsChild() {
		t.Skip("only as a child of others")
	}
	Serve(t, os.Stdin, os.Stdout)
}

// TestExplore runs many seeds (make sim), and makes what it finds small.
func TestExplore(t *testing.T) {
	if *many == 0 && *long == 0 {
		t.Skip("run make sim")
	}
	first := *from
	if first == 0 {
		first = uint64(time.Now().UnixNano()) >> 10
	}
	f := &findings{like: map[string]int{}, ran: map[string]int{}}
	began := time.Now()
	fmt.Printf("sim: seeds from %d\n", first)
	Exploration{
		Kinds: chosen(t), From: first, Seeds: *many, For: *long, Children: runtime.NumCPU(),
		Ran: func(s Schedule, res Result) bool { f.add(s, res); return true },
	}.Explore()
	took := time.Since(began)
	for _, k := range chosen(t) {
		fmt.Printf("sim: %d schedules of world %s, %d of them with findings\n", f.ran[k.Name], k.Name, f.bad(k.Name))
	}
	fmt.Printf("sim: %d messages, %d of them again, %v of virtual time in %v: %.1f schedules a second\n",
		f.messages, f.again, f.virtual.Round(time.Minute), took.Round(time.Second), float64(f.schedules)/took.Seconds())
	for _, found := range f.first {
		t.Error(found.small(t, f.like[found.like]))
	}
}

// findings are what an exploration found, the first of each kind.
type findings struct {
	first               []found
	like                map[string]int
	ran                 map[string]int
	badly               []string
	schedules, messages int
	again               int
	virtual             time.Duration
}

type found struct {
	like     string
	schedule Schedule
	result   Result
}

func (f *findings) add(s Schedule, res Result) {
	f.ran[s.World]++
	f.schedules, f.messages, f.again, f.virtual = f.schedules+1, f.messages+res.Messages, f.again+res.Again, f.virtual+res.Virtual
	if len(res.Findings) == 0 {
		return
	}
	f.badly = append(f.badly, s.World)
	like := s.World + ": " + Likeness(res.Findings[0])
	if f.like[like]++; f.like[like] == 1 {
		f.first = append(f.first, found{like, s, res})
		fmt.Printf("sim: world %s, seed %d: %s\n", s.World, s.Seed, res.Findings[0])
	}
}

func (f *findings) bad(world string) (n int) {
	for _, w := range f.badly {
		if w == world {
			n++
		}
	}
	return n
}

// small makes a finding small, and says how to keep it.
func (f found) small(t *testing.T, like int) string {
	r := &Runner{}
	defer r.Close()
	s := Shrinker{Try: func(c Schedule) Result { return r.Try(c, false) }, Until: time.Now().Add(*shrinks)}
	small, res, hits, of := s.Shrink(f.schedule, f.result)
	small.Why = res.Findings[0]
	file := filepath.Join(os.TempDir(), fmt.Sprintf("sim-%s-%d.json", small.World, small.Seed))
	if err := os.WriteFile(file, []byte(small.String()), 0o644); err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("world %s, seed %d (%d seeds with one like it; %d of %d runs of this seed have it): %s\n"+
		"made small, to %d messages and %d faults. To keep it: testdata/kept/<name>.json, it is in %s.\n"+
		"To run it: -run TestSchedule -sim.schedule=<file>.\n%s\n%s",
		f.schedule.World, f.schedule.Seed, like, hits, of, f.result.about(false), small.Messages(), small.Faults(), file, small,
		strings.Join(res.Told, "\n"))
}

// TestKept runs each schedule that was kept because of what it once found.
func TestKept(t *testing.T) {
	files, err := filepath.Glob("testdata/kept/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) { repeat(t, file, *times) })
	}
}

// TestSchedule runs one schedule, and prints all that happened when it finds something.
func TestSchedule(t *testing.T) {
	if *one == "" {
		t.Skip("there is no -sim.schedule")
	}
	repeat(t, *one, *times)
}

// repeat runs the schedule of a file so often, or until something is found.
func repeat(t *testing.T, file string, times int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s Schedule
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	w := &Watch{Logs: true}
	defer w.Stand(os.Stdout)()
	for n := range times {
		if res := Run(t, s, w); len(res.Findings) > 0 {
			t.Fatalf("run %d of %q: %s", n+1, s.Why, res.about(true))
		}
	}
}
