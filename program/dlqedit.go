package program

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/longshoremq/longshore/internal/namedfile"
	"github.com/spf13/cobra"
)

// A dlqEdit is the command edit.
type dlqEdit struct {
	dlqReplay
	valueFile   string
	set, remove []string
	notJSON     bool

	headers []broker.Header // of set
}

func newDLQEdit(p Parts) *cobra.Command {
	e := &dlqEdit{dlqReplay: dlqReplay{parts: p, target: dlqTarget{adapters: p.adapters()}}}
	cmd := &cobra.Command{
		Use:   "edit LETTER",
		Short: "Edit a dead letter and replay the edited copy",
		Long: "Opens the payload of a dead letter in $VISUAL or $EDITOR, or takes it from a file, and publishes the edited message, " +
			"confirmed, to --to or\n" +
			"to where the letter says that it came from, if a consumer of the file reads that. The letter itself stays as it is " +
			"(neither broker can change what is stored), counts as replayed, and is shown as edited.\n" +
			"Nothing is published when nothing was changed.",
		Example: "  longshore dlq edit -c c.yaml 0/17\n  jq .amount=1 broken.json | longshore dlq edit -c c.yaml 0/17 --value-file " +
			"-\n  longshore dlq edit --subject dead.orders 17 --to orders --header tenant=eu --remove-header trace",
		Args: func(cmd *cobra.Command, args []string) error {
			_, err := onePlace(args)
			return asUsage(errors.Join(e.target.check(cmd), err, e.check()))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			place, _ := onePlace(args) // was checked
			return e.run(cmd.Context(), place, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	e.target.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&e.valueFile, "value-file", "", "file with the new payload; -: standard input")
	f.StringArrayVar(&e.set, "header", nil, "header to set, as name=value; may be given several times")
	f.StringArrayVar(&e.remove, "remove-header", nil, "header to remove; may be given several times")
	f.BoolVar(&e.notJSON, "not-json", false, "publish a payload that was JSON and is none any more")
	f.StringVar(&e.replay.To, "to", "", "topic or subject to publish to (default with -c where the letter came from)")
	f.IntVar(&e.replay.MaxReplays, "max-replays", 5, "how often a message may be replayed, all told")
	f.BoolVar(&e.replay.Again, "again", false, "though the letter was replayed already")
	e.byFlag(cmd)
	f.BoolVar(&e.asJSON, "json", false, "print the summary as JSON")
	_ = cmd.MarkFlagFilename("value-file")
	return cmd
}

// check reports all that is wrong with the flags at once.
func (e *dlqEdit) check() error {
	var errs []error
	if e.replay.MaxReplays < 1 {
		errs = append(errs, fmt.Errorf("--max-replays is %d, want at least 1", e.replay.MaxReplays))
	}
	errs = append(errs, e.checkTo())
	var err error
	e.headers, err = headersOf(e.set)
	errs = append(errs, err)
	for _, name := range e.remove {
		if err := deadletters.CheckHeader(name); err != nil {
			errs = append(errs, fmt.Errorf("--remove-header: %w", err))
		}
	}
	return errors.Join(errs...)
}

// headersOf reads the values of --header, each name=value. It reports all mistakes at once.
func headersOf(set []string) (headers []broker.Header, err error) {
	var errs []error
	for _, h := range set {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			errs = append(errs, fmt.Errorf("--header is %q, want name=value", h))
			continue
		}
		if err := deadletters.CheckHeader(name); err != nil {
			errs = append(errs, fmt.Errorf("--header: %w", err))
		}
		headers = append(headers, broker.Header{Key: name, Value: []byte(value)})
	}
	return headers, errors.Join(errs...)
}

func (e *dlqEdit) run(ctx context.Context, place broker.Place, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	box, err := e.target.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.end(stderr)) }()
	if err := errors.Join(box.mayReplay(e.replay.To), box.named(ctx, []broker.Place{place})); err != nil {
		return err
	}
	l, err := box.Get(ctx, place)
	if err != nil {
		return err
	}
	if l.State == deadletters.Replayed && !e.replay.Again {
		return fmt.Errorf("letter %s was replayed at %s, to %s: --again edits and replays it once more", deadletters.FormatPlace(place),
			timeText(l.ReplayedAt), escape(l.ReplayedTo))
	}
	edit := deadletters.Edit{Headers: e.headers, Without: e.remove, NotJSON: e.notJSON}
	if err := edit.CheckRemoved(l); err != nil {
		return fmt.Errorf("%w: nothing was published", err)
	}
	if edit.Value, err = e.value(ctx, l.Message.Value, stdin, stderr); err != nil {
		return err
	}
	switch err := edit.Check(l); {
	case errors.Is(err, deadletters.ErrNotJSON):
		return fmt.Errorf("%w: nothing was published (--not-json does)", err)
	case err != nil:
		return fmt.Errorf("%w: nothing was published", err)
	}
	o := e.replay
	o.By = cmp.Or(o.By, whoami())
	o.Filter = deadletters.Filter{Places: []broker.Place{place}}
	o.Edit = edit.Apply
	var to string
	o.OnLetter = func(_ *deadletters.Letter, where string, _ error) { to = where }
	if o.Allow, err = e.allow(ctx, box); err != nil {
		return err
	}
	sum, err := box.Replay(ctx, o)
	if err == nil && sum.Chosen == 0 { // it was on its way when a replay was stopped, and had arrived
		err = errors.New("nothing was published: the letter turned out to be replayed already (--again edits and replays it once more)")
	}
	return errors.Join(err, e.tellEdited(stdout, sum, place, to), outcome(sum))
}

// tellEdited prints the summary of one letter.
func (e *dlqEdit) tellEdited(w io.Writer, s deadletters.Summary, place broker.Place, to string) error {
	if e.asJSON || s.Replayed != 1 {
		return e.tell(w, s)
	}
	fmt.Fprintf(w, "published the edited copy of letter %s to %s\n", deadletters.FormatPlace(place), escape(to))
	e.details(w, s)
	return nil
}

// value is the new payload: of a file, of the editor, or as it was where only headers are edited.
func (e *dlqEdit) value(ctx context.Context, was []byte, stdin io.Reader, stderr io.Writer) ([]byte, error) {
	switch {
	case e.valueFile != "":
		b, err := until(ctx, func() ([]byte, error) {
			if e.valueFile == "-" {
				return namedfile.All(stdin, "standard input", maxSize)
			}
			return namedfile.Once(e.valueFile, maxSize)
		})
		if err != nil {
			return nil, fmt.Errorf("reading the new payload: --value-file: %w", err)
		}
		return b, nil
	case len(e.headers)+len(e.remove) > 0:
		return was, nil
	case !isText(was):
		return nil, errors.New("the payload is no text: give the new one with --value-file")
	}
	return editText(ctx, was, stdin, stderr)
}

// editText lets the user edit a text in the editor of $VISUAL or $EDITOR. It is in a file that only the user can read, which is
// removed.
func editText(ctx context.Context, text []byte, stdin io.Reader, stderr io.Writer) ([]byte, error) {
	command := strings.Fields(cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR")))
	if len(command) == 0 {
		return nil, usageError{errors.New("neither VISUAL nor EDITOR is set: set one, or give the new payload with --value-file")}
	}
	folder, err := newEditFolder()
	if err != nil {
		return nil, fmt.Errorf("making a folder for the payload: %w", err)
	}
	defer func() { _ = folder.remove() }()
	file := filepath.Join(folder.path, "payload")
	if json.Valid(text) {
		file += ".json"
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	editor := exec.CommandContext(ctx, command[0], append(command[1:], file)...) // #nosec G204 G702 -- the caller chose it
	editor.Stdin, editor.Stdout, editor.Stderr = stdin, raw(stderr), raw(stderr) // stdout is for what we print
	if err := editor.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w; nothing was published", command[0], err)
	}
	edited, err := os.ReadFile(file) // #nosec G304 -- we made it, in a folder of our own
	if err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(text, []byte("\n")) { // editors end the last line
		edited = bytes.TrimSuffix(edited, []byte("\n"))
	}
	return edited, nil
}
