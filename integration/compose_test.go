package integration

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/longshoremq/longshore/consumer/metrics"
)

var pinned = regexp.MustCompile(`^[a-z0-9./-]+:v?[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.-]*$`)

// compose loads docker-compose.yml as docker compose does, with profiles.
func compose(t *testing.T, profiles ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../docker-compose.yml"}, cli.WithoutEnvironmentResolution,
		cli.WithProfiles(profiles))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// TestCompose: images are pinned to a release, each service says when it is healthy, nothing listens beyond this machine, and
// what is mounted from here exists.
func TestCompose(t *testing.T) {
	project := compose(t, "*")
	for name, s := range project.Services {
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q is not pinned to a release", name, s.Image)
		}
		if s.HealthCheck == nil || s.HealthCheck.Disable || len(s.HealthCheck.Test) == 0 {
			t.Errorf("%s has no health check", name)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p.HostIP, "127.") {
				t.Errorf("%s publishes port %s on %q, not on loopback only", name, p.Published, p.HostIP)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s mounts %s, which has to exist (%v) and to be read-only", name, v.Source, err)
			}
		}
		for other, d := range s.DependsOn {
			if d.Condition != types.ServiceConditionHealthy {
				t.Errorf("%s starts when %s has %q: it should wait until that is healthy", name, other, d.Condition)
			}
		}
	}
}

// TestComposeProfiles: without a profile there are the brokers alone.
func TestComposeProfiles(t *testing.T) {
	for _, c := range []struct {
		profiles []string
		want     string
	}{
		{nil, "kafka nats"},
		{[]string{"observe"}, "grafana kafka kafka-ui nats prometheus"},
	} {
		names := compose(t, c.profiles...).ServiceNames()
		slices.Sort(names)
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("with profiles %v: %s, want %s", c.profiles, got, c.want)
		}
	}
}

// TestComposeKafka: what our tests need of a Kafka whose addresses they are given, and the release that they start themselves
// elsewhere.
func TestComposeKafka(t *testing.T) {
	kafka := compose(t).Services["kafka"]
	version := regexp.MustCompile(`<artifactId>kafka_2.13</artifactId>\s*<version>([^<]+)<`).FindStringSubmatch(read(t, "pom.xml"))
	if version == nil || kafka.Image != "apache/kafka:"+version[1] {
		t.Errorf("docker-compose.yml has %s, pom.xml has %q", kafka.Image, version)
	}
	for name, want := range map[string]string{
		"KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "200", // sessions of a second
		"KAFKA_ADVERTISED_LISTENERS":         "HOST://127.0.0.1:9092,INTERNAL://kafka:19092",
	} {
		if got := kafka.Environment[name]; got == nil || *got != want {
			t.Errorf("%s is not %q", name, want)
		}
	}
	if len(kafka.Ports) != 1 || kafka.Ports[0].Published != "9092" {
		t.Errorf("ports %v: HOST is advertised as 127.0.0.1:9092", kafka.Ports)
	}
}

// TestPrometheusConfig: it reads the admin address that our documentation says, and the data source of Grafana is where compose
// puts Prometheus.
func TestPrometheusConfig(t *testing.T) {
	var config struct {
		Rules  []string `yaml:"rule_files"`
		Scrape []struct {
			Job     string `yaml:"job_name"`
			Configs []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	unmarshal(t, "../deploy/prometheus.yml", &config)
	if rules := compose(t, "observe").Services["prometheus"].Volumes[1].Target; len(config.Rules) != 1 || config.Rules[0] != rules {
		t.Errorf("Prometheus reads the rules %v, and they are at %s", config.Rules, rules)
	}
	if len(config.Scrape) == 0 || config.Scrape[0].Job != "longshore" ||
		config.Scrape[0].Configs[0].Targets[0] != "host.docker.internal:8080" {
		t.Errorf("the first job is not longshore's admin address: %+v", config.Scrape)
	}
	if hosts := compose(t, "observe").Services["prometheus"].ExtraHosts["host.docker.internal"]; !slices.Equal(hosts,
		[]string{"host-gateway"}) {
		t.Errorf("in Prometheus' container, host.docker.internal is %v", hosts)
	}
	var sources struct {
		Datasources []struct{ UID, URL string }
	}
	unmarshal(t, "../deploy/grafana/provisioning/datasources/prometheus.yml", &sources)
	if len(sources.Datasources) != 1 || sources.Datasources[0].UID != "prometheus" ||
		sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("Grafana's data source: %+v", sources.Datasources)
	}
}

func unmarshal(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, path)), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestDashboards: each panel asks the data source that is provisioned, for metrics and labels that longshore has. Each
// distribution has a panel, and so have the breakers.
func TestDashboards(t *testing.T) {
	labels := exposedMetrics()
	unseen := map[string]bool{}
	for name := range labels { // all distributions, and what says that something is not called at all
		if strings.HasSuffix(name, "_seconds") && !strings.HasSuffix(name, "_timestamp_seconds") ||
			strings.HasSuffix(name, "_breaker_state") {
			unseen[name] = true
		}
	}
	files, err := filepath.Glob("../deploy/grafana/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	for _, file := range files {
		var dashboard struct {
			Panels []struct {
				Title      string
				Datasource struct{ UID string }
				Targets    []struct{ Expr string }
			}
		}
		if err := json.Unmarshal([]byte(read(t, file)), &dashboard); err != nil || len(dashboard.Panels) == 0 {
			t.Fatalf("%s: %v, %d panels", file, err, len(dashboard.Panels))
		}
		for _, p := range dashboard.Panels {
			if p.Datasource.UID != "prometheus" || len(p.Targets) == 0 {
				t.Errorf("%s: panel %q asks data source %q %d things", file, p.Title, p.Datasource.UID, len(p.Targets))
			}
			for _, target := range p.Targets {
				for name := range unseen {
					if strings.Contains(target.Expr, name) {
						delete(unseen, name)
					}
				}
				if !lagOfAll(target.Expr) {
					t.Errorf("%s: panel %q asks %s, which is wrong where several processes have partitions", file, p.Title, target.Expr)
				}
				if wrong := unknownIn(target.Expr, labels); len(wrong) > 0 {
					t.Errorf("%s: panel %q asks %s, where longshore has no %v", file, p.Title, target.Expr, wrong)
				}
			}
		}
	}
	if len(unseen) > 0 {
		t.Errorf("no panel shows %v", slices.Sorted(maps.Keys(unseen)))
	}
}

// lagOfAll says whether a query puts the lags of several processes together as docs/metrics.md says; one that asks for no lag
// does.
func lagOfAll(expr string) bool {
	lags := regexp.MustCompile(`longshore_(lag|unsettled)_messages`).FindAllString(expr, -1)
	right := regexp.MustCompile(`sum by \(consumer\) \(max by \(consumer, topic, partition\) `+
		`\((deriv\()?longshore_(lag|unsettled)_messages`).FindAllString(expr, -1)
	return len(lags) == len(right)
}

// TestAlerts: the alerts ask for what there is, are all described for who reads the documentation, and are those of the chart.
func TestAlerts(t *testing.T) {
	const file = "../deploy/prometheus/rules.yml"
	if read(t, file) != read(t, "../deploy/helm/longshore/files/rules.yml") {
		t.Errorf("the chart has other alerts than %s: copy them", file)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
			}
		}
	}
	unmarshal(t, file, &rules)
	if len(rules.Groups) != 1 || len(rules.Groups[0].Rules) == 0 {
		t.Fatalf("no rules in %s", file)
	}
	tests, page := read(t, "../deploy/prometheus/rules_test.yml"), read(t, "../docs/metrics.md")
	incidents := read(t, "../docs/incidents.md")
	for _, r := range rules.Groups[0].Rules {
		if wrong := unknownIn(r.Expr, exposedMetrics()); len(wrong) > 0 || !lagOfAll(r.Expr) {
			t.Errorf("%s asks %s: longshore has no %v, or the lag is not that of all", r.Alert, r.Expr, wrong)
		}
		if row := regexp.MustCompile("(?m)^\\| `" + r.Alert + "` \\|.*\\| " + r.Labels["severity"] + " \\|$"); !row.MatchString(page) {
			t.Errorf("docs/metrics.md has no row of %s with its severity", r.Alert)
		}
		if !strings.Contains(incidents, "`"+r.Alert+"`") {
			t.Errorf("docs/incidents.md does not say what to do when %s fires", r.Alert)
		}
		fires := regexp.MustCompile(`alertname: ` + r.Alert + `\n +exp_alerts:`)
		if !fires.MatchString(tests) || !strings.Contains(tests, "alertname: "+r.Alert+"}") {
			t.Errorf("rules_test.yml does not show when %s fires, and when it does not", r.Alert)
		}
	}
}

// TestDashboardsSeesTypos is the proof that the test above can fail.
func TestDashboardsSeesTypos(t *testing.T) {
	labels := exposedMetrics()
	for expr, want := range map[string]int{
		`sum by (consumer, state) (longshore_workers{consumer="a"})`:                                0,
		`sum by (consumer, le) (rate(longshore_handler_duration_seconds_bucket{consumer="a"}[1m]))`: 0,
		`sum by (consumer, stat) (longshore_workers)`:                                               1,
		`rate(longshore_handled_total[1m])`:                                                         1,
		`longshore_workers{kind="a"}`:                                                               1,
	} {
		if wrong := unknownIn(expr, labels); len(wrong) != want {
			t.Errorf("%s: found %v, want %d findings", expr, wrong, want)
		}
	}
}

// exposedMetrics is the labels of each metric.
func exposedMetrics() map[string][]string {
	descs := make(chan *prometheus.Desc)
	go func() {
		metrics.New("any").Describe(descs)
		close(descs)
	}()
	labels := map[string][]string{}
	parts := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([^}]*)\}`)
	for d := range descs {
		if m := parts.FindStringSubmatch(d.String()); m != nil {
			labels[m[1]] = append(strings.Split(m[2], ","), "consumer", "le")
		}
	}
	return labels
}

// unknownIn is what a query names and longshore does not have.
func unknownIn(expr string, labels map[string][]string) (wrong []string) {
	var has []string
	for _, name := range regexp.MustCompile(`longshore_\w+`).FindAllString(expr, -1) {
		of, ok := labels[strings.TrimSuffix(name, "_bucket")]
		if !ok {
			wrong = append(wrong, name)
			continue
		}
		has = append(has, of...)
	}
	if len(wrong) > 0 {
		return wrong
	}
	var asked []string
	for _, m := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(expr, -1) {
		asked = append(asked, strings.Split(m[1], ", ")...)
	}
	for _, m := range regexp.MustCompile(`(\w+)(?:=|=~|!=|!~)"`).FindAllStringSubmatch(expr, -1) {
		asked = append(asked, m[1])
	}
	for _, label := range asked {
		if !slices.Contains(has, label) {
			wrong = append(wrong, label)
		}
	}
	return wrong
}
