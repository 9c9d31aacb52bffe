//go:build unix

package kafkad

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/gofrs/flock"
)

// errUnavailable: this machine cannot run Apache Kafka. Anything else that goes wrong is a failure.
var errUnavailable = errors.New("there is no Apache Kafka here")

// artifacts is Kafka's jars and what runs them.
type artifacts struct{ java, jars string }

// apache finds Apache Kafka, and fetches it where no test did before; once per test binary.
var apache = sync.OnceValues(func() (artifacts, error) { return find(wantedVersions(os.Getenv)) })

// apacheTools is the same for what is run of its tools. They are of one version with all that they need: beside a broker's jars
// of another they lack classes, or find those of another.
var apacheTools = sync.OnceValues(func() (artifacts, error) {
	v := wantedVersions(os.Getenv)
	return find(versions{broker: v.tools, tools: v.tools})
})

func find(v versions) (artifacts, error) {
	java, err := javaProgram(os.Getenv("JAVA_HOME"))
	if err != nil {
		return artifacts{}, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/longshoremq/longshore").Output()
	if err != nil {
		return artifacts{}, fmt.Errorf("asking for the module's folder: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	pom := filepath.Join(strings.TrimSpace(string(root)), "integration", "pom.xml")
	jars, err := fetch(pom, v, filepath.Join(cache, "longshore"))
	return artifacts{java, jars}, err
}

func javaProgram(home string) (string, error) {
	if home != "" {
		return exec.LookPath(filepath.Join(home, "bin", "java"))
	}
	return exec.LookPath("java")
}

// fetch returns the folder below cache that has what pom names, and lets Maven fill it where it is not there. Several test
// processes may want it at once: one works, under a lock, the others wait. The folder gets its name when it is complete, so that
// nobody runs half of it.
func fetch(pom string, v versions, cache string) (dir string, err error) {
	text, err := os.ReadFile(pom)
	if err != nil {
		return "", fmt.Errorf("reading which Kafka to run: %w", err)
	}
	text = v.in(text)
	dir = filepath.Join(cache, fmt.Sprintf("kafka-%x", sha256.Sum256(text))[:18])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock := flock.New(dir + ".lock")
	if err := lock.Lock(); err != nil {
		return "", fmt.Errorf("waiting for another process that fetches Kafka: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, copyDependencies(text, dir)
}

// versions are others of Kafka than the pom says; empty: those. The tools have one of their own, since a broker's may be missing.
type versions struct{ broker, tools string }

func wantedVersions(env func(string) string) versions {
	broker := env("LONGSHORE_KAFKA_VERSION")
	return versions{broker: broker, tools: cmp.Or(env("LONGSHORE_KAFKA_TOOLS_VERSION"), broker)}
}

// in puts them into a pom.
func (v versions) in(pom []byte) []byte {
	return kafkaVersion.ReplaceAllFunc(pom, func(found []byte) []byte {
		part := kafkaVersion.FindSubmatch(found)
		version := v.broker
		if string(part[2]) == "kafka-tools" {
			version = v.tools
		}
		if version == "" {
			return found
		}
		return fmt.Appendf(nil, "%s%s<", part[1], version)
	})
}

// kafkaVersion is where the pom says it.
var kafkaVersion = regexp.MustCompile(`(<groupId>org\.apache\.kafka</groupId>\s*<artifactId>([^<]*)</` +
	`artifactId>\s*<version>)[^<]*<`)

// copyDependencies runs Maven on a copy of the pom, beside which it may write.
func copyDependencies(pom []byte, dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "kafka-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), pom, 0o644); err != nil {
		return err
	}
	jars := filepath.Join(tmp, "jars")
	cmd := exec.Command(mvn, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory="+jars)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: Maven does not fetch it: %w\n%s", errUnavailable, err, out)
	}
	return os.Rename(jars, dir)
}

// command runs a class of Kafka's in a small JVM that starts fast.
func (a artifacts) command(heap, class string, args ...string) *exec.Cmd {
	jvm := []string{"-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dlog4j2.level=WARN",
		"-cp", filepath.Join(a.jars, "*"), class}
	return exec.Command(a.java, append(jvm, args...)...)
}

// run runs a class to its end and returns what it printed.
func (a artifacts) run(class string, args ...string) (string, error) {
	out, err := a.command("256m", class, args...).CombinedOutput()
	switch {
	case err == nil:
		return string(out), nil
	case strings.Contains(string(out), "UnsupportedClassVersionError"):
		return "", fmt.Errorf("%w: this Java is too old for it", errUnavailable)
	default:
		return "", fmt.Errorf("running %s: %w\n%s", class, err, out)
	}
}
