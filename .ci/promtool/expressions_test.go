package promtool

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
	"go.yaml.in/yaml/v3"
)

const deploy = "../../deploy/"

// TestExpressions: each query of the dashboard has a series above zero at some time, and the expression of each alert has a
// series: on what two processes answered while all happened that they are about (integration's TestScrapes wrote it down). One
// that asks for a metric, a label or a value that is not there would have none.
func TestExpressions(t *testing.T) {
	w := load(t)
	all := expressions(t)
	if len(all) < 58 {
		t.Errorf("%d expressions are fewer than there were: %q", len(all), slices.Sorted(maps.Keys(all)))
	}
	for name, x := range all {
		if err := w.shows(x); err != nil {
			t.Errorf("%s: %v: %s", name, err, x.text)
		}
	}
	t.Logf("%d expressions on %d samples of %v", len(all), w.samples, w.to.Sub(w.from))
}

// TestSeesWhatIsNotThere is the proof that TestExpressions can fail: with other names for its metrics, no expression has a
// series, but what asks for the absence of one.
func TestSeesWhatIsNotThere(t *testing.T) {
	w := load(t)
	for name, x := range expressions(t) {
		if strings.HasPrefix(x.text, "absent(") {
			continue
		}
		x.text = strings.ReplaceAll(x.text, "longshore_", "longshore_no_")
		if err := w.shows(x); err == nil {
			t.Errorf("%s: there is a series of %s", name, x.text)
		}
	}
}

// An expression is a query of a dashboard, or an alert's: that one fires with any value.
type expression struct {
	text  string
	alert bool
}

// A world is what was scraped, in a database of Prometheus.
type world struct {
	engine   *promql.Engine
	db       *tsdb.DB
	from, to time.Time
	samples  int
}

// load reads the file that SCRAPES names.
func load(t *testing.T) *world {
	t.Helper()
	file, err := os.Open(os.Getenv("SCRAPES"))
	if err != nil {
		t.Fatal("SCRAPES is to name what integration's TestScrapes wrote: ", err)
	}
	defer file.Close()
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{db: db, engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute,
		LookbackDelta: 5 * time.Minute, Parser: parser.NewParser(parser.Options{})})}
	t.Cleanup(func() {
		if err := errors.Join(w.engine.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	instances := map[string]bool{}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		var s struct {
			At             int64
			Instance, Text string
		}
		if err := errors.Join(err, json.Unmarshal(line, &s)); err != nil {
			t.Fatal(err)
		}
		if err := w.add(s.At, s.Instance, s.Text); err != nil {
			t.Fatal(err)
		}
		instances[s.Instance] = true
	}
	if len(instances) != 2 {
		t.Errorf("scrapes of %d processes, want 2", len(instances))
	}
	return w
}

// add takes a scrape, as Prometheus would of a target: up says whether it answered.
func (w *world) add(at int64, instance, text string) error {
	app := w.db.Appender(context.Background())
	up := 0.0
	if text != "" {
		up = 1
	}
	of := labels.FromStrings(labels.MetricName, "up", "job", "longshore", "instance", instance)
	if _, err := app.Append(0, of, at, up); err != nil {
		return fmt.Errorf("%v: %w", of, err)
	}
	p := textparse.NewPromParser([]byte(text), labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("what %s answered: %w", instance, err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := p.Series()
		var series labels.Labels
		p.Labels(&series)
		of := labels.NewBuilder(series).Set("job", "longshore").Set("instance", instance).Labels()
		if _, err := app.Append(0, of, at, value); err != nil {
			return fmt.Errorf("%v: %w", of, err)
		}
		w.samples++
	}
	if t := time.UnixMilli(at); w.from.IsZero() || t.Before(w.from) {
		w.from = t
	}
	if t := time.UnixMilli(at); t.After(w.to) {
		w.to = t
	}
	return app.Commit()
}

// shows evaluates an expression at each second, from before the first scrape to the last, and fails where it shows nothing.
func (w *world) shows(x expression) error {
	q, err := w.engine.NewRangeQuery(context.Background(), w.db, nil, x.text, w.from.Add(-5*time.Second), w.to, time.Second)
	if err != nil {
		return err
	}
	defer q.Close()
	r := q.Exec(context.Background())
	if r.Err != nil {
		return r.Err
	}
	m, err := r.Matrix()
	if err != nil {
		return err
	}
	for _, series := range m {
		for _, p := range series.Floats {
			if x.alert || p.F > 0 && !math.IsInf(p.F, 0) {
				return nil
			}
		}
	}
	if len(m) == 0 {
		return errors.New("there is no series")
	}
	return fmt.Errorf("%d series, none of them ever above zero", len(m))
}

// expressions are those of the dashboards and of the alerts, by where they stand.
func expressions(t *testing.T) map[string]expression {
	t.Helper()
	all := map[string]expression{}
	files, err := filepath.Glob(deploy + "grafana/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no dashboards: ", err)
	}
	for _, file := range files {
		dashboard(t, file, all)
	}
	alerts(t, deploy+"prometheus/rules.yml", all)
	return all
}

// A panel is one of a dashboard, or a row of them.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
	Panels  []panel
}

func dashboard(t *testing.T, file string, all map[string]expression) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d panel
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(file, ": ", err)
	}
	// What Grafana fills in: all consumers, and four times the interval of the scrapes at least.
	filled := strings.NewReplacer("$consumer", ".*", "$__rate_interval", "1m")
	var walk func(in string, ps []panel)
	walk = func(in string, ps []panel) {
		for _, p := range ps {
			for i, x := range p.Targets {
				expr := filled.Replace(x.Expr)
				if strings.Contains(expr, "$") {
					t.Errorf("%s: a variable that nobody fills in: %s", p.Title, expr)
				}
				all[fmt.Sprintf("%s, panel %q, query %d", in, p.Title, i)] = expression{text: expr}
			}
			walk(in, p.Panels)
		}
	}
	walk(filepath.Base(file), d.Panels)
}

func alerts(t *testing.T, file string, all map[string]expression) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(b, &rules); err != nil {
		t.Fatal(file, ": ", err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all["alert "+r.Alert] = expression{strings.TrimSpace(r.Expr), true}
		}
	}
}
