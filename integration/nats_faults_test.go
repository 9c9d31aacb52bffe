//go:build unix

package integration

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// purge lets messages vanish that nobody got: once by the stream's own limit while no process runs, once by a purge while one
// does. (A purge while none runs cannot be noticed: the server moves the durable past it.)
func purge(t *testing.T, k kind) string {
	f := newField(t, k.start(t), longshoreConsumer)
	f.startConsumers(t, 1)
	if code, _ := f.consumers[0].terminate(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if _, err := f.onNATS().js.UpdateStream(t.Context(),
		jetstream.StreamConfig{Name: loadStream, Subjects: []string{"load.>"}, MaxMsgs: 100}); err != nil {
		t.Fatal(err)
	}
	f.publish(t, 300)
	f.consumers = nil
	f.startConsumers(t, 1)
	p := f.consumers[0]
	f.reportsGap(t, p, 100, 200)

	if _, err := f.onNATS().js.PauseConsumer(t.Context(), loadStream, loadDurable, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	f.publish(t, 100)
	stream, err := f.onNATS().js.Stream(t.Context(), loadStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(351)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.onNATS().js.ResumeConsumer(t.Context(), loadStream, loadDurable); err != nil {
		t.Fatal(err)
	}
	f.reportsGap(t, p, 150, 250)
	if code, _ := p.terminate(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	return fmt.Sprintf("skipped 200 by limit and 50 by purge, reported %d", gaps(p))
}

// reportsGap waits until so many are handled and so many reported as skipped, in all.
func (f *field) reportsGap(t *testing.T, p *process, handled int, skipped int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d are handled", handled), func() bool { return len(f.entries(t)) >= handled })
	eventually(t, fmt.Sprintf("%d are reported as skipped", skipped), func() bool { return gaps(p) >= skipped })
	if h, s := len(f.entries(t)), gaps(p); h != handled || s != skipped {
		t.Errorf("%d handled and %d reported as skipped, want %d and %d", h, s, handled, skipped)
	}
}

func recreate(t *testing.T, k kind) string {
	f := newField(t, k.start(t), longshoreConsumer)
	f.load = f.startLoad(t, faultRate, 0)
	f.startConsumers(t, 1)
	p := f.consumers[0]
	p.says(t, "handled", 1)
	if err := f.onNATS().js.DeleteConsumer(t.Context(), loadStream, loadDurable); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	code := p.exit(t)
	if code != 1 || p.err.count("consumer:") == 0 {
		t.Errorf("with its durable deleted it exits with %d and %q; want 1 and the reason", code, p.err.tail())
	}
	surfaced := time.Since(began)

	f.config.Recreate, f.consumers = true, nil
	f.startConsumers(t, 1)
	f.consumers[0].says(t, "handled", 1)
	if err := f.onNATS().js.DeleteConsumer(t.Context(), loadStream, loadDurable); err != nil {
		t.Fatal(err)
	}
	f.moves(t, faultRate)
	f.load.stop()
	if a := f.settle(t); a.Lost != 0 || a.Unseen != 0 {
		t.Errorf("after its durable was made anew: %+v", a)
	}

	if err := f.onNATS().js.DeleteStream(t.Context(), loadStream); err != nil {
		t.Fatal(err)
	}
	f.onNATS().createStream(t)
	before := len(f.entries(t))
	f.load = f.startLoad(t, killRate, 300)
	f.load.finish()
	eventually(t, "all 300 of the new stream are handled, under sequences that were used before",
		func() bool { return len(f.entries(t)) >= before+300 })
	if code, _ := f.consumers[0].terminate(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	return fmt.Sprintf("surfaced after %v, exit code %d; with Recreate all went on", surfaced.Round(time.Millisecond), code)
}

func forgottenAcks(t *testing.T, k kind) string {
	f := newField(t, k.start(t), longshoreConsumer)
	f.config.Recreate = true
	f.startConsumers(t, 1)
	f.load = f.startLoad(t, faultRate, 0)
	f.consumers[0].says(t, "handled", 1)
	f.moves(t, faultRate)
	durable := filepath.Join(f.onNATS().server.Dir, "jetstream", "$G", "streams", loadStream, "obs", loadDurable)
	kept := filepath.Join(t.TempDir(), "kept")
	f.restart(t, func() { copyDir(t, durable, kept) })
	f.moves(t, 2*faultRate)
	f.restart(t, func() { removeDir(t, durable); copyDir(t, kept, durable) })
	f.moves(t, faultRate)
	floorBack := len(f.entries(t))
	f.restart(t, func() { removeDir(t, durable) })
	f.moves(t, faultRate)
	a := f.finish(t)
	return fmt.Sprintf("floor set back at %d handled, then the durable removed; %v", floorBack, a)
}

// restart kills the server, does something to its data, and starts it.
func (f *field) restart(t *testing.T, between func()) {
	t.Helper()
	f.on.kill()
	between()
	if err := f.on.restart(); err != nil {
		t.Fatal(err)
	}
}

func manyFailures(t *testing.T, k kind) string {
	f := newField(t, k.start(t), longshoreConsumer)
	f.config.FailRuns = 8
	f.startConsumers(t, 1)
	f.load = f.startLoad(t, faultRate, 300)
	f.load.finish()
	a := f.finish(t)
	a.noDuplicates(t)
	if n := f.onNATS().mustInfo(t).Config.MaxDeliver; n != -1 {
		t.Errorf("the durable has MaxDeliver %d: what reaches it would be dropped without a word", n)
	}
	return fmt.Sprintf("30 messages failed 8 times each; %v", a)
}

// longHandler has a second process with nothing to do: what the first did not keep extended would go there.
func longHandler(t *testing.T, k kind) string {
	f := newField(t, k.start(t), longshoreConsumer)
	f.config.Lease, f.config.SlowFirst, f.config.Workers = time.Second, 3*time.Second, 1
	f.startConsumers(t, 1)
	f.load = f.startLoad(t, killRate, 41)
	f.load.finish()
	eventually(t, "all 41 are out", func() bool { return f.onNATS().mustInfo(t).Delivered.Stream >= 41 })
	f.startConsumers(t, 1)
	a := f.finish(t)
	a.noDuplicates(t)
	if a.Handled != 41 {
		t.Errorf("%d of 41 handled", a.Handled)
	}
	pids := map[int]bool{}
	for _, e := range f.entries(t) {
		pids[e.Pid] = true
	}
	if len(pids) != 1 {
		t.Errorf("%d processes handled them: the first did not keep what it held", len(pids))
	}
	return fmt.Sprintf("41 messages, %d runs, %d process", a.Handled+a.Duplicates, len(pids))
}
