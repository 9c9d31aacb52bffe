package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/longshoremq/longshore/integration/kafkad"
)

func main() {
	rounds := flag.Int("rounds", 5, "how often each system is measured; the median counts")
	scale := flag.Float64("scale", 1, "share of the full number of messages")
	only := flag.String("only", "", "the groups to measure, separated by commas: "+
		"handoff,sleep,engine,hooks,page,batch,order,engine_sleep,jetstream,knee,cliff,compute,kafka,kafka_key,kafka_key_10,"+
		"kafka_key_1000,kafka_key_skew,kafka_eos,kafka_eos_random,kafka_eos_5ms,kafka_sleep,kafka_crowd,kafka_letters,"+
		"kafka_publish,jetstream_letters,jetstream_large,jetstream_sleep,codecs,webhook,trickle,slow,partitions,sizes,idle "+
		"(default all)")
	asJSON := flag.Bool("json", false, "print one JSON object instead of lines")
	one := flag.String("one", "", "measure one system, group/system, in this process")
	n := flag.Int("n", 0, "with -one: how many messages")
	url := flag.String("url", "", "with -one: the server")
	flag.StringVar(&profiles, "profiles", "", "a folder for the CPU profile of each system, as group-system.pprof")
	flag.Parse()
	var err error
	if *one != "" {
		err = profiled(*one, func() error { return measureOne(os.Stdout, *one, *n, *url) })
	} else {
		err = measureAll(os.Stdout, *only, *rounds, *scale, *asJSON)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

var profiles string

// profiled writes a CPU profile of do, where one is wanted.
func profiled(name string, do func() error) error {
	if profiles == "" {
		return do()
	}
	if err := os.MkdirAll(profiles, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(profiles, strings.ReplaceAll(name, "/", "-")+".pprof"))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	err = do()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}

// measureOne is the process of one measurement.
func measureOne(out io.Writer, name string, n int, url string) error {
	for _, g := range groups {
		for _, s := range g.systems {
			if g.name+"/"+s.name == name {
				return json.NewEncoder(out).Encode(s.run(n, url))
			}
		}
	}
	return fmt.Errorf("no system %q", name)
}

func measureAll(out io.Writer, only string, rounds int, scale float64, asJSON bool) error {
	wanted := strings.Split(only, ",")
	figures := map[string]any{}
	for _, g := range groups {
		if only != "" && !slices.Contains(wanted, g.name) {
			continue
		}
		fs, err := g.measure(rounds, scale)
		if errors.Is(err, kafkad.ErrUnavailable) && only == "" {
			fmt.Fprintf(os.Stderr, "bench: %s was not measured: %v\n", g.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		for _, f := range fs {
			if figures[f.name] = f.value; !asJSON {
				fmt.Fprintln(out, f)
			}
		}
		for _, f := range fs {
			fmt.Fprintf(os.Stderr, "spread of %d rounds: %s %.3g..%.3g\n", rounds, f.name, f.low, f.high)
		}
	}
	if len(figures) == 0 {
		return fmt.Errorf("no group %q", only)
	}
	if asJSON {
		return json.NewEncoder(out).Encode(figures)
	}
	return nil
}

func (f figure) String() string {
	value := fmt.Sprintf("%.3g", f.value)
	if math.Abs(f.value) >= 100 {
		value = fmt.Sprintf("%.0f", f.value)
	}
	if f.none {
		return fmt.Sprintf("%s %s - ok", f.name, value)
	}
	sign, word := "<=", "ok"
	if f.least {
		sign = ">="
	}
	if !f.ok() {
		word = "short"
	}
	return fmt.Sprintf("%s %s %s%g %s", f.name, value, sign, f.target, word)
}

// measure runs the group's systems in turns. Figures are computed from the samples of one round, so that a ratio compares
// neighbours in time; then the median of each figure over the rounds counts.
func (g group) measure(rounds int, scale float64) (fs []figure, err error) {
	turn := func(url string) {
		var all [][]figure
		for range rounds {
			round := map[string]sample{}
			for _, s := range g.systems {
				if round[s.name], err = measureInProcess(g.name+"/"+s.name, g.count(s, scale), url); err != nil {
					return
				}
			}
			all = append(all, g.figures(round))
		}
		fs = medians(all)
	}
	if g.server == nil {
		turn("")
		return fs, err
	}
	most := slices.MaxFunc(g.systems, func(a, b system) int { return cmp.Compare(a.n, b.n) })
	if e := g.server(g.count(most, scale), turn); e != nil {
		return nil, e
	}
	return fs, err
}

func (g group) count(s system, scale float64) int {
	n := int(float64(s.n) * scale)
	return max(n-n%chunkSize, chunkSize)
}

func measureInProcess(name string, n int, url string) (s sample, err error) {
	exe, err := os.Executable()
	if err != nil {
		return s, err
	}
	out, err := exec.Command(exe, "-one", name, "-n", fmt.Sprint(n), "-url", url, "-profiles", profiles).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return s, fmt.Errorf("measuring %s: %w", name, err)
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return s, fmt.Errorf("measuring %s: %w: %q", name, err, out)
	}
	return s, nil
}

// medians takes the figures of each round, which are the same ones in the same order.
func medians(rounds [][]figure) []figure {
	fs := slices.Clone(rounds[0])
	for i := range fs {
		vs := make([]float64, len(rounds))
		for r := range rounds {
			vs[r] = rounds[r][i].value
		}
		slices.Sort(vs)
		fs[i].value, fs[i].low, fs[i].high = vs[len(vs)/2], vs[0], vs[len(vs)-1]
	}
	return fs
}

func round(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}
