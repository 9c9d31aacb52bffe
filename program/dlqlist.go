package program

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/spf13/cobra"
)

func newDLQList(p Parts) *cobra.Command {
	t, chosen := &dlqTarget{adapters: p.adapters()}, &letterFlags{}
	var asJSON, summary bool
	var limit int
	cmd := &cobra.Command{
		Use:   "list [LETTER ...]",
		Short: "List dead letters",
		Long: "Lists dead letters in the order of their topic, or those that the flags choose. With --json an object a line. What " +
			"comes from messages is\n" +
			"escaped. Where --limit left some out, stderr says that there are more. --summary counts them instead, by who gave them up, " +
			"class of the error\nand where they came from; of a file that of all its consumers, unless --consumer names one.",
		Example: "  longshore dlq list -c c.yaml --class timeout --since 2h\n  longshore dlq list --topic orders-dead --state " +
			"waiting --json\n  longshore dlq list -c c.yaml --summary",
		Args: func(cmd *cobra.Command, args []string) error {
			_, err := chosen.filter(cmd, args, time.Now())
			if limit < 0 {
				err = errors.Join(err, fmt.Errorf("--limit is %d, negative", limit))
			}
			if summary && (limit > 0 || len(args) > 0) {
				err = errors.Join(err, errors.New("--summary counts all that the other flags choose: it takes neither --limit nor letters"))
			}
			return asUsage(errors.Join(t.check(cmd), err))
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			filter, _ := chosen.filter(cmd, args, time.Now()) // was checked
			if summary {
				return t.summarize(cmd, filter, asJSON)
			}
			box, err := t.open(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, box.end(cmd.ErrOrStderr())) }()
			if err := box.named(cmd.Context(), filter.Places); err != nil {
				return err
			}
			box.narrow(&filter)
			out, n, more := newLetterTable(cmd.OutOrStdout()), 0, false
			err = box.List(cmd.Context(), filter, func(l *deadletters.Letter) error {
				if limit > 0 && n == limit {
					more = true
					return broker.ErrStopScan
				}
				n++
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), letterOf(box.topic, l, false))
				}
				return out.add(l)
			})
			if err == nil && n == 0 && !asJSON {
				fmt.Fprintln(cmd.OutOrStdout(), "no letters")
			}
			err = errors.Join(err, out.flush())
			if more { // there is no telling how many without reading them all
				fmt.Fprintf(cmd.ErrOrStderr(), "these are the first %d: there are more\n", limit)
			}
			return err
		},
	}
	t.flags(cmd)
	chosen.flags(cmd)
	cmd.Flags().BoolVar(&summary, "summary", false, "how many, by handler, class and origin, with the oldest and the newest")
	cmd.Flags().IntVar(&limit, "limit", 0, "the most letters to list; 0: all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, an object a line")
	return cmd
}

func newDLQShow(p Parts) *cobra.Command {
	t := &dlqTarget{adapters: p.adapters()}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show LETTER",
		Short: "Show a dead letter: headers, payload, and what became of it",
		Long: "Shows all that is known of a dead letter. Text is escaped, so that no message can rewrite the terminal; binary " +
			"headers and keys are shown\n" +
			"in hex, a binary payload as a hex dump. Headers may hold secrets: they are shown as they are.",
		Example: "  longshore dlq show -c c.yaml 0/17\n  longshore dlq show --subject dead.orders 17 --json",
		Args: func(cmd *cobra.Command, args []string) error {
			_, err := onePlace(args)
			return asUsage(errors.Join(t.check(cmd), err))
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			place, _ := onePlace(args)
			box, err := t.open(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, box.end(cmd.ErrOrStderr())) }()
			if err := box.named(cmd.Context(), []broker.Place{place}); err != nil {
				return err
			}
			l, err := box.Get(cmd.Context(), place)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), letterOf(box.topic, l, true))
			}
			return printLetter(cmd.OutOrStdout(), box.topic, l)
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// A letterTable lists letters for people.
type letterTable struct {
	w      *tabwriter.Writer
	n      int
	failed bool // add said that it cannot be written
}

func newLetterTable(out io.Writer) *letterTable {
	return &letterTable{w: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
}

// tableRows are aligned together: a long list is not held in memory.
const tableRows = 200

func (t *letterTable) add(l *deadletters.Letter) error {
	if t.n == 0 {
		fmt.Fprintln(t.w, "LETTER\tFAILED\tSTATE\tHANDLER\tCLASS\tATTEMPTS\tREPLAYS\tKEY\tFROM\tERROR")
	}
	_, err := fmt.Fprintf(t.w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", deadletters.FormatPlace(l.Place),
		secondText(l.At()), stateText(l),
		dash(shown([]byte(l.Handler), 40)), dash(shown([]byte(l.Class), 20)), l.Attempts, l.Replays, dash(shown(l.Message.Key,
			32)), dash(shown([]byte(l.OriginalTopic), 60)),
		dash(shown([]byte(l.Error), 80)))
	if t.n++; err == nil && t.n%tableRows == 0 {
		err = t.w.Flush()
	}
	t.failed = err != nil
	return err
}

// flush writes what is left, also where the list ended with an error. One that add has told is not told again.
func (t *letterTable) flush() error {
	if t.failed {
		return nil
	}
	return t.w.Flush()
}

func printLetter(out io.Writer, topic string, l *deadletters.Letter) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	row("letter", topic+" "+deadletters.FormatPlace(l.Place))
	row("stored", timeText(l.Message.Time()))
	state := stateText(l)
	if l.State != deadletters.Waiting {
		state += " " + timeText(l.ReplayedAt) + ", to " + shown([]byte(l.ReplayedTo), 0)
		if l.ReplayedBy != "" {
			state += ", by " + shown([]byte(l.ReplayedBy), 0)
		}
	}
	row("state", state)
	from := shown([]byte(l.OriginalTopic), 0)
	if l.OriginalOffset >= 0 {
		from += " " + deadletters.FormatPlace(broker.Place{Partition: l.OriginalPartition, Offset: l.OriginalOffset})
	}
	row("from", from)
	row("written", timeText(l.OriginalTime))
	row("handler", shown([]byte(l.Handler), 0))
	row("attempts", strconv.Itoa(l.Attempts))
	row("first failure", timeText(l.FirstFailure))
	row("last failure", timeText(l.LastFailure))
	row("class", shown([]byte(l.Class), 0))
	row("error", shown([]byte(l.Error), 0))
	row("replays", strconv.Itoa(l.Replays))
	for _, h := range l.History {
		row("history", shown([]byte(h), 0))
	}
	if l.Message.Key != nil {
		row("key", shown(l.Message.Key, 0))
	}
	for _, h := range byName(l.Message.Headers) {
		row("header", shown([]byte(h.Key), 0)+": "+shown(h.Value, 0))
	}
	row("payload", fmt.Sprintf("%d bytes", len(l.Message.Value)))
	if err := w.Flush(); err != nil {
		return err
	}
	return printPayload(out, l.Message.Value)
}

// byName are headers sorted by name, those of one name in their order: NATS keeps no order of names.
func byName(hs broker.Headers) (list []broker.Header) {
	for k, v := range hs.All() {
		list = append(list, broker.Header{Key: k, Value: v})
	}
	slices.SortStableFunc(list, func(a, b broker.Header) int { return strings.Compare(a.Key, b.Key) })
	return list
}

// stateText is what became of a letter.
func stateText(l *deadletters.Letter) string {
	s := string(l.State)
	if l.Edited {
		s += ",edited"
	}
	if l.PerhapsTwice {
		s += ",perhaps-twice"
	}
	return s
}

// secondText is a time in a table.
func secondText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// A letterJSON is what --json prints of a letter. Bytes that are no text are in hex, under another name.
type letterJSON struct {
	Letter            string       `json:"letter"`
	Topic             string       `json:"topic"`
	Partition         *int32       `json:"partition,omitempty"`
	Offset            int64        `json:"offset"`
	Stored            string       `json:"stored"`
	State             string       `json:"state"`
	ReplayedAt        string       `json:"replayed_at,omitempty"`
	ReplayedTo        string       `json:"replayed_to,omitempty"`
	ReplayedBy        string       `json:"replayed_by,omitempty"`
	Edited            bool         `json:"edited,omitempty"`
	PerhapsTwice      bool         `json:"perhaps_twice,omitempty"`
	OriginalTopic     string       `json:"original_topic,omitempty"`
	OriginalPartition *int32       `json:"original_partition,omitempty"`
	OriginalOffset    *int64       `json:"original_offset,omitempty"`
	OriginalTime      string       `json:"original_time,omitempty"`
	Handler           string       `json:"handler,omitempty"`
	Class             string       `json:"class,omitempty"`
	Error             string       `json:"error,omitempty"`
	Attempts          int          `json:"attempts"`
	FirstFailure      string       `json:"first_failure,omitempty"`
	LastFailure       string       `json:"last_failure,omitempty"`
	Replays           int          `json:"replays"`
	History           []string     `json:"history,omitempty"`
	Key               *string      `json:"key,omitempty"`
	KeyHex            string       `json:"key_hex,omitempty"`
	Bytes             int          `json:"bytes"`
	Headers           []headerJSON `json:"headers,omitempty"`
	Value             *string      `json:"value,omitempty"`
	ValueHex          string       `json:"value_hex,omitempty"`
}

type headerJSON struct {
	Key      string  `json:"key"`
	Value    *string `json:"value,omitempty"`
	ValueHex string  `json:"value_hex,omitempty"`
}

// letterOf is with headers and payload when it is whole.
func letterOf(topic string, l *deadletters.Letter, whole bool) letterJSON {
	j := letterJSON{
		Letter: deadletters.FormatPlace(l.Place), Topic: topic, Offset: l.Offset, Stored: timeText(l.Message.Time()),
		State: string(l.State), ReplayedAt: timeText(l.ReplayedAt), ReplayedTo: l.ReplayedTo, ReplayedBy: l.ReplayedBy,
		Edited: l.Edited, PerhapsTwice: l.PerhapsTwice,
		OriginalTopic: l.OriginalTopic, OriginalTime: timeText(l.OriginalTime), Handler: l.Handler, Class: l.Class, Error: l.Error,
		Attempts:     l.Attempts,
		FirstFailure: timeText(l.FirstFailure), LastFailure: timeText(l.LastFailure), Replays: l.Replays, History: l.History,
		Bytes: len(l.Message.Value),
	}
	if l.Partition >= 0 {
		j.Partition = &l.Partition
	}
	if l.OriginalPartition >= 0 {
		j.OriginalPartition = &l.OriginalPartition
	}
	if l.OriginalOffset >= 0 {
		j.OriginalOffset = &l.OriginalOffset
	}
	if l.Message.Key != nil {
		j.Key, j.KeyHex = textOrHex(l.Message.Key)
	}
	if !whole {
		return j
	}
	for _, stored := range byName(l.Message.Headers) {
		h := headerJSON{Key: stored.Key}
		h.Value, h.ValueHex = textOrHex(stored.Value)
		j.Headers = append(j.Headers, h)
	}
	j.Value, j.ValueHex = textOrHex(l.Message.Value)
	return j
}

func textOrHex(b []byte) (text *string, hexed string) {
	if isText(b) {
		s := string(b)
		return &s, ""
	}
	return nil, hex.EncodeToString(b)
}
