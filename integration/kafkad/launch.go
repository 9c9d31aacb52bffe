//go:build unix

package kafkad

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// ErrUnavailable: this machine cannot run Apache Kafka.
var ErrUnavailable = errUnavailable

// Launch starts brokers for a program that is no test.
func Launch(c Config) (*Cluster, error) { return start(c) }

// Close ends brokers of Launch, and removes their data.
func (k *Cluster) Close() { k.close() }

// CompileJava compiles a Java file into a folder, against the jars of Kafka's own clients. What it returns runs a class of it, in
// a JVM as Java's defaults have it. ErrUnavailable where there is no Kafka, or no JDK.
func CompileJava(file, dir string) (run func(class string, args ...string) *exec.Cmd, err error) {
	a, err := apache()
	if err != nil {
		return nil, err
	}
	javac, err := exec.LookPath(filepath.Join(filepath.Dir(a.java), "javac"))
	if err != nil {
		return nil, fmt.Errorf("%w: there is no Java compiler: %w", errUnavailable, err)
	}
	jars := filepath.Join(a.jars, "*")
	if out, err := exec.Command(javac, "-cp", jars, "-d", dir, file).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling %s: %w\n%s", file, err, out)
	}
	return func(class string, args ...string) *exec.Cmd {
		jvm := []string{"-Xmx1g", "-Dlog4j2.level=ERROR", "-cp", dir + string(filepath.ListSeparator) + jars, class}
		return exec.Command(a.java, append(jvm, args...)...)
	}, nil
}
