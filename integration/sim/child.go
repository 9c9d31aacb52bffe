package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
)

// A run that spins, or a panic in a goroutine of the product, takes its process with it. So schedules are run by children,
// which are this package's test binary, and what a child dies of is a finding like others.

// childEnv makes the test binary a child.
const childEnv = "LONGSHORE_SIM_CHILD"

// resultMark begins the line of a result, among what a test prints.
const resultMark = "sim result "

// A request is a schedule to run.
type request struct {
	Schedule Schedule
	Logs     bool
}

// IsChild says whether this process is a child.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// Serve runs the schedules that come in, one after the other, until there are no more.
func Serve(t *testing.T, in io.Reader, out io.Writer) {
	w := &Watch{}
	defer w.Stand(out)()
	for d := json.NewDecoder(in); ; {
		var q request
		if err := d.Decode(&q); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("reading a schedule: %v", err)
		}
		w.Logs = q.Logs
		res := Run(t, q.Schedule, w)
		w.at.Store(nil)
		if len(res.Findings) == 0 && !q.Logs {
			res.Told = nil
		}
		b, err := json.Marshal(res)
		if err != nil {
			t.Fatalf("writing a result: %v", err)
		}
		if _, err := fmt.Fprintf(out, "%s%s\n", resultMark, b); err != nil {
			t.Fatalf("writing a result: %v", err)
		}
	}
}

// stillFor is how long of real time a bubble's time may stand still. Some milliseconds are usual.
const stillFor = 20 * time.Second

// standsStill begins what is said where time does not go on.
const standsStill = "time stands still"

// Stand ends this process, with all stacks, where the time of a run does not go on: nothing else can, inside a bubble.
func (w *Watch) Stand(out io.Writer) (end func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		last, since := int64(0), time.Now()
		for t := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-t.C:
			case <-over:
				t.Stop()
				return
			}
			s, now := w.at.Load(), w.now.Load()
			if s == nil || now != last {
				last, since = now, time.Now()
				continue
			}
			if time.Since(since) > stillFor {
				fmt.Fprintf(out, "\n%s in a run, for %v: something spins, or waits for a mutex\n%v", standsStill, stillFor, s)
				_ = pprof.Lookup("goroutine").WriteTo(out, 2)
				os.Exit(3)
			}
		}
	}()
	return func() { close(over); <-ended }
}

// A Runner runs schedules in a child, and starts another one where it has died. It is for one goroutine.
type Runner struct {
	// Binary is a test binary of this package. Defaults to the one that runs.
	Binary string
	// Env is added to the child's environment.
	Env []string

	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	runs int
}

const (
	// childRuns is how many runs a child makes before another one takes its place, so that nothing piles up.
	childRuns = 500
	// runTimeout is how long of real time a run may take, on a machine that is busy with other things.
	runTimeout = 3 * time.Minute
)

// Try runs a schedule.
func (r *Runner) Try(s Schedule, logs bool) Result {
	if r.runs >= childRuns {
		r.Close()
	}
	if r.cmd == nil {
		if err := r.start(); err != nil {
			return Result{Findings: []string{fmt.Sprintf("the child cannot be started: %v", err)}}
		}
	}
	r.runs++
	began := time.Now()
	late := time.AfterFunc(runTimeout, func() { _ = r.cmd.Process.Kill() })
	defer late.Stop()
	res, said, err := r.ask(request{s, logs})
	if err == nil {
		if len(res.Findings) > 0 {
			r.Close() // who knows what is left there
		}
		return res
	}
	code := r.end()
	return Result{Findings: []string{death(said, code)}, Told: strings.Split(said, "\n"), Real: time.Since(began)}
}

func (r *Runner) start() (err error) {
	binary := r.Binary
	if binary == "" {
		binary = os.Args[0]
	}
	r.cmd = exec.Command(binary, "-test.run=^TestChild$", "-test.timeout=0")
	r.cmd.Env = append(append(os.Environ(), childEnv+"=1"), r.Env...)
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	r.cmd.Stdout, r.cmd.Stderr = write, write
	r.out, r.runs = bufio.NewReaderSize(read, 1<<20), 0
	err = r.cmd.Start()
	_ = write.Close()
	return err
}

// ask sends a schedule and waits for what becomes of it. said is what else the child has printed.
func (r *Runner) ask(q request) (res Result, said string, err error) {
	if err := json.NewEncoder(r.in).Encode(q); err != nil {
		return res, "", err
	}
	var other bytes.Buffer
	for {
		line, err := r.out.ReadString('\n')
		if result, ok := strings.CutPrefix(line, resultMark); ok {
			return res, other.String(), json.Unmarshal([]byte(result), &res)
		}
		other.WriteString(line)
		if err != nil {
			return res, other.String(), err
		}
	}
}

// death is what a child died of, in one line.
func death(said string, code int) string {
	for line := range strings.SplitSeq(said, "\n") {
		for _, mark := range []string{standsStill, "panic: ", "fatal error: ", "WARNING: DATA RACE"} {
			if at := strings.Index(line, mark); at >= 0 {
				return "the process of the run died: " + line[at:]
			}
		}
	}
	return fmt.Sprintf("the process of the run died with exit code %d: %s", code, said[max(0, len(said)-500):])
}

// end waits for a child that has no more to do.
func (r *Runner) end() (code int) {
	_ = r.in.Close()
	_ = r.cmd.Wait()
	code = r.cmd.ProcessState.ExitCode()
	r.cmd = nil
	return code
}

// Close ends the child.
func (r *Runner) Close() {
	if r.cmd != nil {
		_ = r.in.Close()
		_, _ = io.Copy(io.Discard, r.out)
		r.end()
	}
}
