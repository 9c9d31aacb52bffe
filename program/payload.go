package program

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/longshoremq/longshore/internal/namedfile"
	"github.com/spf13/cobra"
)

// A payload makes the values of produced messages.
type payload interface {
	// next is the value of message number n. It waits for one until ctx ends, which is errStopped; io.EOF: there is no more.
	next(ctx context.Context, n int64) ([]byte, error)
	// ready says whether next would not wait.
	ready() bool
	// name is what message number n is called in an error. It is of the last that next made, mostAtOnce of them.
	name(n int64) string
	// longest is how many bytes a value has at most.
	longest() int
}

// payloadFlags say what the messages hold; without them they are numbered.
type payloadFlags struct {
	data, file string
	lines      bool
	size       int
}

// flagsOfPayload are the names of those that replace the numbered messages.
var flagsOfPayload = []string{"data", "file", "lines"}

func (p *payloadFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.data, "data", "", "payload of each message, a template: {{.Index}} is its number, from 0, {{.Time}} the time")
	f.StringVar(&p.file, "file", "", "file with the payload, sent as it is; - is the standard input")
	f.BoolVar(&p.lines, "lines", false, "each line of the standard input, or of --file, is a message; empty lines are none")
	f.IntVar(&p.size, "size", 100, "bytes of each numbered message")
	_ = cmd.MarkFlagFilename("file")
}

// own says whether the messages are not the numbered ones.
func (p *payloadFlags) own(cmd *cobra.Command) bool { return len(setFlags(cmd, flagsOfPayload...)) > 0 }

// check finds all that is wrong with them.
func (p *payloadFlags) check(cmd *cobra.Command) error {
	var errs []error
	data, file := cmd.Flags().Changed("data"), cmd.Flags().Changed("file")
	if data && (file || p.lines) {
		errs = append(errs, fmt.Errorf("--data and %s are set: a message has one payload", setFlags(cmd, "file", "lines")[0]))
	}
	if data {
		if _, err := newPattern("--data", p.data); err != nil {
			errs = append(errs, err)
		}
	}
	if file && p.file == "" {
		errs = append(errs, errors.New("--file is empty"))
	}
	if p.own(cmd) && cmd.Flags().Changed("size") {
		errs = append(errs, fmt.Errorf("--size and %s are set: the first is for numbered messages",
			setFlags(cmd, flagsOfPayload...)[0]))
	}
	if p.size < minSize || p.size > maxSize {
		errs = append(errs, fmt.Errorf("--size is %d, want %d to %d", p.size, minSize, maxSize))
	}
	return errors.Join(errs...)
}

// open makes the payload; closed is called after the last next.
func (p *payloadFlags) open(cmd *cobra.Command) (from payload, closed func() error, err error) {
	closed = func() error { return nil }
	switch {
	case !p.own(cmd):
		return numbered(p.size), closed, nil
	case cmd.Flags().Changed("data"):
		from, err = newPattern("--data", p.data)
		return from, closed, err
	}
	in := cmd.InOrStdin()
	if p.file != "" && p.file != "-" {
		f, err := until(cmd.Context(), func() (*os.File, error) { return os.Open(p.file) })
		if err != nil {
			return nil, nil, fmt.Errorf("--file: %w", err)
		}
		in, closed = f, f.Close
	}
	if p.lines {
		return readLines(in), closed, nil
	}
	whole, err := until(cmd.Context(), func() ([]byte, error) { return namedfile.All(in, p.file, maxSize) })
	switch {
	case err != nil:
		err = fmt.Errorf("--file: %w", err)
	case len(whole) == 0: // what was to write it has failed, more likely than not
		err = errors.Join(fmt.Errorf("--file %s is empty; --data '' sends an empty message", p.file), closed())
	}
	return verbatim(whole), closed, err
}

// numbered are messages of so many bytes, {"number": 17, "pad": "…"}.
type numbered int

func (size numbered) next(_ context.Context, n int64) ([]byte, error) {
	body := struct {
		Number int64  `json:"number"`
		Pad    string `json:"pad"`
	}{Number: n}
	bare, _ := json.Marshal(body) // cannot fail: a number and a string
	body.Pad = strings.Repeat(".", max(0, int(size)-len(bare)))
	return json.Marshal(body)
}

func (numbered) ready() bool         { return true }
func (numbered) name(n int64) string { return numberedName(n) }
func (size numbered) longest() int   { return int(size) }

// verbatim is the same payload each time.
type verbatim []byte

func (v verbatim) next(context.Context, int64) ([]byte, error) { return v, nil }
func (verbatim) ready() bool                                   { return true }
func (verbatim) name(n int64) string                           { return numberedName(n) }
func (v verbatim) longest() int                                { return len(v) }

// numberedName is of a message that has only its number, from 0 as in {{.Index}}.
func numberedName(n int64) string { return fmt.Sprintf("message %d", n) }

// A pattern is a template that is filled in for each message.
type pattern struct {
	flag string
	t    *template.Template
	most int
}

// newPattern reads a template and fills it in once, so that what is wrong with it is known before anything is sent.
func newPattern(flag, text string) (*pattern, error) {
	t, err := template.New(flag).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	p := &pattern{flag: flag, t: t}
	first, err := p.fill(0, time.Now())
	p.most = 2*len(first) + 64<<10 // the others are about as long
	return p, err
}

func (p *pattern) fill(n int64, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	err := p.t.Execute(&b, map[string]any{"Index": n, "Time": at.UTC().Format(time.RFC3339Nano)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.flag, err)
	}
	return b.Bytes(), nil
}

func (p *pattern) next(_ context.Context, n int64) ([]byte, error) { return p.fill(n, time.Now()) }
func (p *pattern) ready() bool                                     { return true }
func (p *pattern) name(n int64) string                             { return numberedName(n) }
func (p *pattern) longest() int                                    { return p.most }

// lines are those of a reader, which may be a terminal or a pipe that gives one now and then.
type lines struct {
	read chan line
	err  error           // why there is no more; after read was closed
	nos  [mostAtOnce]int // of the last that were sent, by the message's number
}

// A line is one that is not empty.
type line struct {
	no   int // from 1
	text []byte
}

// readLines begins to read. Its goroutine ends with the reader, or with the process: a read of the standard input cannot be cut
// short.
func readLines(in io.Reader) *lines {
	l := &lines{read: make(chan line, mostAtOnce)}
	go func() {
		defer close(l.read)
		s := bufio.NewScanner(in)
		s.Buffer(nil, maxSize)
		no := 1
		for ; s.Scan(); no++ {
			if len(s.Bytes()) > 0 {
				l.read <- line{no, bytes.Clone(s.Bytes())}
			}
		}
		switch err := s.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			l.err = fmt.Errorf("line %d has more than %d bytes; nothing from there on was sent", no, maxSize)
		case err != nil:
			l.err = fmt.Errorf("reading line %d: %w", no, err)
		}
	}()
	return l
}

func (l *lines) next(ctx context.Context, n int64) ([]byte, error) {
	select {
	case <-ctx.Done():
		return nil, errStopped
	case one, ok := <-l.read:
		switch {
		case ok:
			l.nos[n%mostAtOnce] = one.no
			return one.text, nil
		case l.err != nil:
			return nil, l.err
		}
		return nil, io.EOF
	}
}

func (l *lines) ready() bool { return len(l.read) > 0 }

func (l *lines) name(n int64) string { return fmt.Sprintf("line %d", l.nos[n%mostAtOnce]) }

func (*lines) longest() int { return maxSize }
