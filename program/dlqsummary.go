package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/longshoremq/longshore/deadletters"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/spf13/cobra"
)

// A letterKind is what letters of one row of a summary have in common.
type letterKind struct {
	topic, handler, class, from string
}

// A letterCount is a row of a summary.
type letterCount struct {
	letters, waiting int64
	oldest, newest   time.Time
}

// A letterSummary counts letters by kind.
type letterSummary map[letterKind]*letterCount

// maxKinds bounds a summary: whoever may publish dead letters may give each of them a kind of its own.
const maxKinds = 1000

// otherKinds are those beyond that.
const otherKinds = "(others)"

func (s letterSummary) add(topic string, l *deadletters.Letter) {
	kind := letterKind{topic, l.Handler, l.Class, l.OriginalTopic}
	if s[kind] == nil && len(s) >= maxKinds {
		kind = letterKind{topic, otherKinds, "", ""}
	}
	if s[kind] == nil {
		s[kind] = &letterCount{oldest: l.At(), newest: l.At()}
	}
	c := s[kind]
	c.letters++
	if l.State == deadletters.Waiting {
		c.waiting++
	}
	if l.At().Before(c.oldest) {
		c.oldest = l.At()
	}
	if l.At().After(c.newest) {
		c.newest = l.At()
	}
}

// kinds are in the order in which they are printed: those with the most letters first.
func (s letterSummary) kinds() []letterKind {
	return slices.SortedFunc(maps.Keys(s), func(a, b letterKind) int {
		return cmp.Or(cmp.Compare(s[b].letters, s[a].letters), strings.Compare(a.topic, b.topic),
			strings.Compare(a.handler, b.handler), strings.Compare(a.class, b.class), strings.Compare(a.from, b.from))
	})
}

func (s letterSummary) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var sum letterCount
	if len(s) > 0 {
		fmt.Fprintln(w, "HANDLER\tCLASS\tFROM\tLETTERS\tWAITING\tOLDEST\tNEWEST\tIN")
	}
	for _, k := range s.kinds() {
		c := s[k]
		sum.letters, sum.waiting = sum.letters+c.letters, sum.waiting+c.waiting
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", dash(shown([]byte(k.handler), 40)), dash(shown([]byte(k.class), 20)),
			dash(shown([]byte(k.from), 60)), c.letters, c.waiting, secondText(c.oldest), secondText(c.newest), escape(k.topic))
	}
	fmt.Fprintf(w, "%s, %d waiting\n", lettersText(sum.letters), sum.waiting)
	return w.Flush()
}

// A letterCountJSON is a row as JSON.
type letterCountJSON struct {
	Topic         string `json:"topic"`
	Handler       string `json:"handler,omitempty"`
	Class         string `json:"class,omitempty"`
	OriginalTopic string `json:"original_topic,omitempty"`
	Letters       int64  `json:"letters"`
	Waiting       int64  `json:"waiting"`
	Oldest        string `json:"oldest"`
	Newest        string `json:"newest"`
}

func (s letterSummary) printJSON(out io.Writer) error {
	for _, k := range s.kinds() {
		c := s[k]
		row := letterCountJSON{k.topic, k.handler, k.class, k.from, c.letters, c.waiting, timeText(c.oldest), timeText(c.newest)}
		if err := writeJSON(out, row); err != nil {
			return err
		}
	}
	return nil
}

// summarize counts the letters that a filter chooses, of all targets that are meant. What cannot be asked is an error, after what
// could be.
func (t *dlqTarget) summarize(cmd *cobra.Command, filter deadletters.Filter, asJSON bool) error {
	targets, err := t.each(cmd.Context(), filter)
	if err != nil {
		return usageError{err}
	}
	s := letterSummary{}
	var errs []error
	for _, one := range targets {
		errs = append(errs, one.count(cmd, filter, s))
	}
	printed := s.print
	if asJSON {
		printed = s.printJSON
	}
	return errors.Join(printed(cmd.OutOrStdout()), errors.Join(errs...))
}

// count adds the letters of one target.
func (t *dlqTarget) count(cmd *cobra.Command, filter deadletters.Filter, s letterSummary) (err error) {
	box, err := t.open(cmd.Context())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.end(cmd.ErrOrStderr())) }()
	box.narrow(&filter)
	return box.List(cmd.Context(), filter, func(l *deadletters.Letter) error { s.add(box.topic, l); return nil })
}

// each is t once for each place that it can mean: of a file, all consumers and targets that it leaves open. Where a filter says
// who gave the letters up, consumers that have theirs in one place mean the same ones.
func (t *dlqTarget) each(ctx context.Context, filter deadletters.Filter) (all []*dlqTarget, err error) {
	if t.file == "" {
		return []*dlqTarget{t}, nil
	}
	doc, err := t.load(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(doc.File.Consumers)) {
		c := doc.File.Consumers[name]
		if c.DeadLetter == nil || t.consumer != "" && t.consumer != name {
			continue
		}
		for _, to := range c.DeadLetter.Targets() {
			if filter.Handler != "" && slices.ContainsFunc(all, func(o *dlqTarget) bool {
				return o.topic+o.subject == to && config.SameLetters(c, doc.File.Consumers[o.consumer], to)
			}) {
				continue
			}
			one, want := *t, t.topic+t.subject
			one.consumer = name
			switch {
			case want != "" && want != to:
				continue
			case want != "":
			case c.Source.Kafka != nil:
				one.topic = to
			default:
				one.subject = to
			}
			all = append(all, &one)
		}
	}
	if len(all) == 0 {
		return []*dlqTarget{t}, nil // which says why there is none
	}
	return all, nil
}
