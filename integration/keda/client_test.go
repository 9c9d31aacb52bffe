// Package keda asks longshore scaler with KEDA's own client: a module of its own, for two registrations of one proto file in a
// binary panic.
package keda

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// patience is how long a condition may take to come.
const patience = 60 * time.Second

// freeAddress is one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts longshore; it is killed at the end of the test.
func start(t *testing.T, bin, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// eventually waits until nil is returned.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	var last error
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(50 * time.Millisecond) {
		if last = ask(); last == nil {
			return
		}
	}
	t.Fatalf("not so after %v: %s: %v", patience, what, last)
}

// TestClient: all calls of KEDA's client, on a consumer whose process does nothing yet, then work, then a broker that is away.
func TestClient(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "longshore")
	build := exec.Command("go", "build", "-o", bin, "./cmd/longshore")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	_, port, _ := net.SplitHostPort(freeAddress(t))
	file := fmt.Sprintf(`log: {level: warn}
embedded: {port: %s}
consumers:
  orders:
    source: {nats: {stream: ORDERS, subjects: ["orders.>"], durable: workers}}
    routes: [{handler: exec, with: {command: [sleep, "60"]}}]
`, port)
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	run := start(t, bin, dir, "run", "-c", "c.yaml")
	at := freeAddress(t)
	start(t, bin, dir, "scaler", "-c", "c.yaml", "--listen", at, "--every", "200ms", "--per-replica", "1")

	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	keda := externalscaler.NewExternalScalerClient(conn)
	ref := &externalscaler.ScaledObjectRef{Name: "orders", Namespace: "default",
		ScalerMetadata: map[string]string{"consumer": "orders"}}
	active := func(want bool) func() error {
		return func() error {
			a, err := keda.IsActive(t.Context(), ref)
			if err == nil && a.Result != want {
				err = fmt.Errorf("active is %v", a.Result)
			}
			return err
		}
	}
	eventually(t, "nothing to do", active(false))
	stream, err := keda.StreamIsActive(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := stream.Recv(); err != nil || a.Result {
		t.Fatalf("the stream's first word: %v, %v", a, err)
	}
	produce := start(t, bin, dir, "produce", "--url", "nats://127.0.0.1:"+port, "--count", "96", "--rate", "0")
	if a, err := stream.Recv(); err != nil || !a.Result {
		t.Fatalf("the stream, when work came: %v, %v", a, err)
	}
	if err := produce.Wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "work", active(true))

	spec, err := keda.GetMetricSpec(t.Context(), ref)
	if err != nil || len(spec.MetricSpecs) != 1 || spec.MetricSpecs[0].TargetSizeFloat != 1 || spec.MetricSpecs[0].TargetSize != 1 {
		t.Fatalf("the metric: %v, %v", spec, err)
	}
	name := spec.MetricSpecs[0].MetricName
	m, err := keda.GetMetrics(t.Context(), &externalscaler.GetMetricsRequest{ScaledObjectRef: ref, MetricName: name})
	if err != nil || len(m.MetricValues) != 1 || m.MetricValues[0].MetricName != name || m.MetricValues[0].MetricValueFloat != 1 {
		t.Errorf("the embedded server belongs to one process: %v, %v", m, err)
	}
	specs, err := keda.StreamMetricSpec(t.Context(), ref)
	if err == nil {
		_, err = specs.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("StreamMetricSpec: %v, want Unimplemented, at which KEDA asks GetMetricSpec", err)
	}
	for meta, code := range map[string]codes.Code{"consumer=none": codes.NotFound, "perReplica=0": codes.InvalidArgument,
		"drainSeconds=x": codes.InvalidArgument} {
		key, value, _ := strings.Cut(meta, "=")
		wrong := &externalscaler.ScaledObjectRef{ScalerMetadata: map[string]string{"consumer": "orders", key: value}}
		if _, err := keda.GetMetrics(t.Context(), &externalscaler.GetMetricsRequest{ScaledObjectRef: wrong}); status.Code(err) != code {
			t.Errorf("%s: %v, want %v", meta, err, code)
		}
	}
	if err := run.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "unknown, and never 0", func() error {
		_, err := keda.IsActive(t.Context(), ref)
		_, err2 := keda.GetMetrics(t.Context(), &externalscaler.GetMetricsRequest{ScaledObjectRef: ref})
		if status.Code(err) != codes.Unavailable || status.Code(err2) != codes.Unavailable {
			return fmt.Errorf("%v, %v", err, err2)
		}
		return nil
	})
}
