package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/consumer/tracing"
)

// ExecConfig says which command Exec runs, and what its exit codes mean.
type ExecConfig struct {
	// Command is the program and its arguments; no shell is involved. The program is looked up at the start: in PATH, or from Dir on
	// where it is a relative path (./resize). Others on the machine can read the arguments: a secret goes into Env. Required.
	Command []string `yaml:"command"`
	// Dir is where it runs. Defaults to the working directory.
	Dir string `yaml:"dir"`
	// Env is added to its environment; the values are kept secret. Defaults to none.
	Env map[string]broker.Secret `yaml:"env"`
	// InheritEnv names the variables that it gets of this program's environment, which may hold secrets of other parts. Defaults to
	// PATH, HOME, TMPDIR, LANG and TZ.
	InheritEnv []string `yaml:"inherit_env"`
	// Timeout is how long it may run. Keep it below the consumer's Timeout. Defaults to 1 min.
	Timeout time.Duration `yaml:"timeout"`
	// KillAfter is how long it gets from SIGTERM to SIGKILL. A drain takes so much longer. Defaults to 5 s.
	KillAfter time.Duration `yaml:"kill_after"`
	// PermanentCodes are exit codes that mean: no retry will help. Defaults to 65 (EX_DATAERR of sysexits.h).
	PermanentCodes []int `yaml:"permanent_codes"`
}

func (c ExecConfig) withDefaults() ExecConfig {
	if c.InheritEnv == nil {
		c.InheritEnv = []string{"PATH", "HOME", "TMPDIR", "LANG", "TZ"}
	}
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	if c.KillAfter == 0 {
		c.KillAfter = 5 * time.Second
	}
	if c.PermanentCodes == nil {
		c.PermanentCodes = []int{65}
	}
	return c
}

func (c ExecConfig) validate() (errs OptionErrors) {
	if len(c.Command) == 0 || c.Command[0] == "" {
		errs.add("command", "is required")
	} else if _, err := c.program(); err != nil {
		errs.add("command[0]", "%v", err)
	}
	for i, a := range c.Command {
		if strings.Contains(a, "\x00") {
			errs.add(fmt.Sprintf("command[%d]", i), "has a zero byte")
		}
	}
	if c.Dir != "" {
		if info, err := os.Stat(c.Dir); err != nil {
			errs.add("dir", "%v", err)
		} else if !info.IsDir() {
			errs.add("dir", "%s is no directory", c.Dir)
		}
	}
	for k, v := range c.Env {
		if !validVariable(k) || strings.Contains(v.Reveal(), "\x00") {
			errs.add("env."+k, "cannot be set: a name has neither '=' nor a zero byte and does not begin with LONGSHORE_, a value has "+
				"no zero byte")
		}
	}
	for i, k := range c.InheritEnv {
		if !validVariable(k) {
			errs.add(fmt.Sprintf("inherit_env[%d]", i), "%q cannot be set", k)
		}
	}
	if c.Timeout <= 0 {
		errs.add("timeout", "is %v, want more than 0", c.Timeout)
	}
	if c.KillAfter <= 0 {
		errs.add("kill_after", "is %v, want more than 0", c.KillAfter)
	}
	for i, code := range c.PermanentCodes {
		if code < 1 || code > 255 {
			errs.add(fmt.Sprintf("permanent_codes[%d]", i), "is %d, want 1 to 255", code)
		}
	}
	return errs
}

// program is where the command's program is. A relative path is one from Dir on: there the system looks for it when it starts the
// command, and another place would be found here and fail there.
func (c ExecConfig) program() (string, error) {
	name := c.Command[0]
	if c.Dir != "" && !filepath.IsAbs(name) && filepath.Base(name) != name {
		path, err := filepath.Abs(filepath.Join(c.Dir, name))
		if err != nil {
			return "", err
		}
		name = path
	}
	return exec.LookPath(name)
}

func validVariable(name string) bool {
	return name != "" && !strings.ContainsAny(name, "=\x00") && !strings.HasPrefix(name, envPrefix)
}

const (
	envPrefix = "LONGSHORE_"
	// shownOutput is the most of a command's output that an error shows: its last bytes.
	shownOutput = 512
)

// Exec runs a command for each message. Its Handle is a consumer.Handler.
//
// The payload is the command's standard input; it need not read it. Its environment has LONGSHORE_TOPIC, _PARTITION, _OFFSET,
// _ID, _KEY and _ATTEMPT, where the message has them, encoded and bounded as Webhook's headers are; and TRACEPARENT and
// TRACESTATE where the handler's context has a span (package tracing).
//
//	exit code 0           acked
//	one of PermanentCodes permanent
//	any other, 75 (EX_TEMPFAIL) among them, a signal, a start that fails   retried
//
// When Timeout has passed or the message's context ends, its process group gets SIGTERM, and SIGKILL after KillAfter. What it
// leaves behind in its group when it ends gets SIGKILL. For this to be so at the end of a drain too, consumer.Config.CancelGrace
// must be longer than KillAfter by a second; and where the process may exit while handlers run, KillCommands comes first. When
// the process is killed, the command is killed with it on Linux, though not the command's children. Where there are no process
// groups (Windows), the process itself is killed at once.
type Exec struct {
	path   string
	env    func() []string                    // funcs, so that fmt cannot print the values:
	redact func(text string, cut bool) string // with an unsuitable verb it goes through pointers
	config ExecConfig
}

// NewExec checks c and reports all findings at once. It runs nothing.
func NewExec(c ExecConfig) (*Exec, error) {
	c = c.withDefaults()
	if err := c.validate().err(); err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	path, err := c.program()
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	var env, secrets []string
	for _, k := range c.InheritEnv {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	for k, v := range c.Env {
		env = append(env, k+"="+v.Reveal())
		if !v.IsZero() {
			secrets = append(secrets, v.Reveal())
		}
	}
	env = slices.Clip(env)
	return &Exec{path: path, env: func() []string { return env }, redact: hide(secrets), config: c}, nil
}

// ExecFactory makes an Exec from options.
func ExecFactory(s *Setup, o Options) (consumer.Handler, error) {
	e, err := execOf(s, o)
	if err != nil {
		return nil, err
	}
	return e.Handle, nil
}

func execOf(s *Setup, o Options) (*Exec, error) {
	c := ExecConfig{}.withDefaults()
	c.Timeout = s.within(c.Timeout)
	err := decodeChecked(o, &c, func() OptionErrors { return s.checkTimeout(c.Timeout, c.checkWritten(o, c.validate())) })
	if err != nil {
		return nil, err
	}
	e, err := NewExec(c)
	if err != nil {
		return nil, err
	}
	s.NeedGrace(later(e.config.KillAfter, time.Second))
	return e, nil
}

// checkWritten finds a dir that is written and empty, as where a variable is: the command would run in longshore's own.
func (c ExecConfig) checkWritten(o Options, errs OptionErrors) OptionErrors {
	if _, written := o.values["dir"]; written && c.Dir == "" {
		errs.add("dir", "is empty")
	}
	return errs
}

// String is the program without its arguments.
func (e *Exec) String() string { return "exec " + e.path }

// Handle runs the command and waits for it. Its errors have the end of what it wrote to its standard output and error, quoted, at
// most 512 bytes, the values of Env taken out.
func (e *Exec) Handle(ctx context.Context, m *consumer.Message) error {
	return e.call(ctx, m.Value, origin(nil, m))
}

// call runs the command on an input, with fields in its environment.
func (e *Exec) call(ctx context.Context, input []byte, fields []field) error {
	ctx, cancel := context.WithTimeoutCause(ctx, e.config.Timeout, fmt.Errorf("%w after %v", consumer.ErrTimeout, e.config.Timeout))
	defer cancel()
	output := &tail{limit: 8 * shownOutput}
	err := e.run(ctx, input, fields, output)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w", e, err)
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%s: stopped: %w", e, cause)
	}
	if text := e.shown(output); text != "" {
		err = fmt.Errorf("%w: output %s", err, text)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && slices.Contains(e.config.PermanentCodes, exit.ExitCode()) {
		return consumer.Permanent(err)
	}
	return err
}

// run runs the command, and collects its output.
func (e *Exec) run(ctx context.Context, input []byte, fields []field, output *tail) error {
	cmd := exec.CommandContext(ctx, e.path, e.config.Command[1:]...) // #nosec G204 -- only the configuration names it
	cmd.Args[0] = e.config.Command[0]
	cmd.Dir = e.config.Dir
	cmd.Env = slices.Clone(e.env())
	for _, f := range fields {
		cmd.Env = append(cmd.Env, f.variable+"="+f.value)
	}
	for _, h := range tracing.Headers(ctx) {
		cmd.Env = append(cmd.Env, strings.ToUpper(h.Key)+"="+string(h.Value))
	}
	cmd.Stdin = bytes.NewReader(input)
	cmd.Stdout, cmd.Stderr = output, output
	err := runCommand(cmd, e.config.KillAfter)
	if errors.Is(err, exec.ErrWaitDelay) { // it ended well, but what it left behind held its output
		return nil
	}
	return err
}

// shown is the end of the output as an error shows it.
func (e *Exec) shown(output *tail) string {
	text := strings.TrimSpace(e.redact(string(output.b), output.cut))
	if text == "" {
		return ""
	}
	if len(text) > shownOutput {
		text = "..." + strings.ToValidUTF8(text[len(text)-shownOutput:], "")
	}
	return strconv.QuoteToASCII(text)
}

// tail is a writer that keeps the last bytes.
type tail struct {
	b     []byte
	limit int
	cut   bool // there was more
}

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	t.cut = t.cut || len(t.b)+len(p) > t.limit
	if len(p) >= t.limit {
		t.b = append(t.b[:0], p[len(p)-t.limit:]...)
		return n, nil
	}
	if over := len(t.b) + len(p) - t.limit; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	t.b = append(t.b, p...)
	return n, nil
}
