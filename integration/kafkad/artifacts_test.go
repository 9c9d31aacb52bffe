//go:build unix

package kafkad

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fakeMaven puts a script in the place of mvn. It writes down each call beside itself.
func fakeMaven(t *testing.T, script string) (calls func() int) {
	t.Helper()
	bin := t.TempDir()
	text := "#!/bin/sh\necho call >>" + bin + "/calls\nfor a in \"$@\"; do case $a in -DoutputDirectory=*) out=${a#*=};; esac; " +
		"done\n" + script
	if err := os.WriteFile(filepath.Join(bin, "mvn"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	return func() int {
		b, _ := os.ReadFile(filepath.Join(bin, "calls"))
		return strings.Count(string(b), "call")
	}
}

func writePom(t *testing.T) string {
	t.Helper()
	pom := filepath.Join(t.TempDir(), "pom.xml")
	if err := os.WriteFile(pom, []byte("<project/>"), 0o644); err != nil {
		t.Fatal(err)
	}
	return pom
}

// TestFetchOnce: who wants the jars at the same time gets them all from one run of Maven, and never half of them.
func TestFetchOnce(t *testing.T) {
	calls := fakeMaven(t, "mkdir -p $out && echo a >$out/a.jar && sleep 0.2 && echo b >$out/b.jar\n")
	pom, cache := writePom(t), filepath.Join(t.TempDir(), "cache")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			dir, err := fetch(pom, versions{}, cache)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(filepath.Join(dir, "b.jar")); err != nil {
				t.Errorf("half of the jars: %v", err)
			}
		})
	}
	wg.Wait()
	if n := calls(); n != 1 {
		t.Errorf("Maven ran %d times, want once", n)
	}
}

// TestFetchFails: a failure leaves nothing that the next try would take for the jars.
func TestFetchFails(t *testing.T) {
	calls := fakeMaven(t, "mkdir -p $out && echo a >$out/a.jar && echo 'no network' && exit 1\n")
	pom, cache := writePom(t), t.TempDir()
	for range 2 {
		if _, err := fetch(pom, versions{}, cache); !errors.Is(err, errUnavailable) || !strings.Contains(err.Error(), "no network") {
			t.Fatalf("got %v; want errUnavailable with Maven's words", err)
		}
	}
	if n := calls(); n != 2 {
		t.Errorf("Maven ran %d times, want 2: the first failure was taken for a success", n)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "*.jar")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestNoMaven(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := fetch(writePom(t), versions{}, t.TempDir()); !errors.Is(err, errUnavailable) {
		t.Fatalf("got %v, want errUnavailable", err)
	}
}

// TestWhereKafkaComesFrom: addresses that were named win. Without any, and without Maven or Java, the fake stands in, unless a
// real one is demanded.
func TestWhereKafkaComesFrom(t *testing.T) {
	k, err := openShared("a:1,b:2", true)
	if err != nil || strings.Join(k.Brokers(), " ") != "a:1 b:2" || !k.Real() {
		t.Fatalf("got %+v, %v", k, err)
	}
	was := apache
	t.Cleanup(func() { apache = was })
	apache = func() (artifacts, error) { return artifacts{}, errUnavailable }
	if k, err := openShared("", true); err == nil {
		t.Fatalf("a real Kafka is demanded, and there is %s", k.Name)
	}
	k, err = openShared("", false)
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	if k.Real() || len(k.Brokers()) != 1 || len(liveBrokers(k.Brokers()[0])) != 1 {
		t.Fatalf("%s at %v does not answer", k.Name, k.Brokers())
	}
}

// TestVersions: the environment chooses which Kafka is run, with tools of another version where it says so, and nothing else of
// the pom changes.
func TestVersions(t *testing.T) {
	pom, err := os.ReadFile("../pom.xml")
	if err != nil {
		t.Fatal(err)
	}
	was := kafkaVersion.FindAllSubmatch(pom, -1)
	if len(was) != 2 || string(was[0][2]) != "kafka_2.13" || string(was[1][2]) != "kafka-tools" {
		t.Fatalf("the pom names %q", was)
	}
	_, pinned, _ := strings.Cut(string(was[0][0]), "<version>")
	pinned = strings.TrimSuffix(pinned, "<")
	for _, tc := range []struct{ broker, tools, wantBroker, wantTools string }{
		{"", "", pinned, pinned}, {"3.9.1", "", "3.9.1", "3.9.1"}, {"4.4.0", "4.2.0", "4.4.0", "4.2.0"}, {"", "4.2.0", pinned, "4.2.0"},
	} {
		v := wantedVersions(func(name string) string {
			return map[string]string{"LONGSHORE_KAFKA_VERSION": tc.broker, "LONGSHORE_KAFKA_TOOLS_VERSION": tc.tools}[name]
		})
		text := string(v.in(pom))
		for artifact, want := range map[string]string{"kafka_2.13": tc.wantBroker, "kafka-tools": tc.wantTools,
			"log4j-slf4j-impl":        "2.25.4",
			"maven-dependency-plugin": "2.8"} {
			if !strings.Contains(strings.Join(strings.Fields(text), ""), "<artifactId>"+artifact+"</artifactId><version>"+want+"<") {
				t.Errorf("%+v: %s has not version %s", tc, artifact, want)
			}
		}
	}
}
