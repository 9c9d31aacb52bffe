package program

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/longshoremq/longshore/consumer/admin"
	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/spf13/cobra"
)

// A top shows what the consumers of a running program are doing.
type top struct {
	file, address string
	every         time.Duration
	once          bool
	adapters      []string // from outside
}

func newTop(p Parts) *cobra.Command {
	t := &top{adapters: p.adapters()}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what the consumers of a running program are doing",
		Long: "Asks the admin address of a program that runs, once a second, and shows of each consumer its state, what waits, " +
			"rates, workers, and the last\n" +
			"decision about their number, with its reason. On a terminal the table is drawn anew in its place. The page on the same " +
			"address,\n" +
			"/ui/, shows more. The rates are those since the look before, so the first table has none. Of what\n" +
			"is IN FLIGHT, RETRY has failed and waits for its next attempt, PUT OFF waits for a limit, and BEHIND for the message\n" +
			"before it in its order. DEAD are the dead letters since the program started.",
		Example: "  longshore top -c c.yaml\n  longshore top --address 127.0.0.1:8080 --once",
		Args: func(cmd *cobra.Command, args []string) error {
			return errors.Join(noArgs(cmd, args), asUsage(t.check()))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&t.file, "config", "c", "", "configuration file of the program: its admin.listen")
	f.StringVar(&t.address, "address", "", "admin address, host:port (default "+admin.DefaultListen+", or the file's)")
	f.DurationVar(&t.every, "every", time.Second, "how often")
	f.BoolVar(&t.once, "once", false, "show one table, of two looks, and end")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

// check reports all that is wrong with the flags at once.
func (t *top) check() error {
	var errs []error
	if t.file != "" && t.address != "" {
		errs = append(errs, errors.New("--config and --address are set: one of them"))
	}
	if t.address != "" {
		if host, port, err := net.SplitHostPort(t.address); err != nil || host == "" || !isPort(port) || strings.Contains(host, "/") {
			errs = append(errs, fmt.Errorf("--address is %q, want host:port, as in %s", t.address, admin.DefaultListen))
		}
	}
	if t.every <= 0 {
		errs = append(errs, fmt.Errorf("--every is %v, want more than 0", t.every))
	}
	return errors.Join(errs...)
}

// isPort says whether a text is a port's number.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// at is the admin address.
func (t *top) at(ctx context.Context) (string, error) {
	if t.file == "" {
		return cmp.Or(t.address, admin.DefaultListen), nil
	}
	doc, err := loadFile(ctx, t.file, t.adapters)
	if err != nil {
		return "", err
	}
	if err := doc.ErrOf(config.NeedsAdmin); err != nil {
		return "", err
	}
	c := doc.File.Admin
	if c == nil {
		return "", errors.New("the file has no admin: without it nobody can ask the program")
	}
	host, port, err := net.SplitHostPort(cmp.Or(c.Listen, admin.DefaultListen))
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // it listens everywhere, so here too
	}
	return net.JoinHostPort(host, port), err
}

// run shows tables until ctx ends.
func (t *top) run(ctx context.Context, stdout, stderr io.Writer) error {
	at, err := t.at(ctx)
	if err != nil {
		return usageError{err}
	}
	show := &topTable{out: stdout, redraw: !t.once && isTerminal(stdout)}
	for looks := 1; ; looks++ {
		all, err := lookAt(ctx, at)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && t.once:
			return err
		case err != nil: // it may be about to start
			fmt.Fprintln(stderr, "longshore:", err)
		case !t.once || looks > 1:
			err = show.print(all, time.Now())
		default:
			show.keep(all, time.Now())
		}
		if t.once && looks > 1 {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(t.every):
		}
	}
}

// A topRow is what GET /consumers says of one.
type topRow struct {
	Consumer string `json:"consumer"`
	State    string `json:"state"`
	Paused   bool   `json:"paused"`
	Ready    bool   `json:"ready"`
	Limits   struct{ Max int }
	Workers  struct{ Busy, Idle, Stuck int }
	InFlight int64  `json:"in_flight"`
	Parked   int    `json:"parked"`
	PutOff   int    `json:"put_off"`
	Behind   int    `json:"lane_waiting"`
	Lag      *int64 `json:"lag"`
	Handled  int64  `json:"handled"`
	Skipped  int64  `json:"skipped"`
	Failed   int64  `json:"failed"`
	Dead     int64  `json:"dead_lettered"`
	Decision *struct {
		From, To int
		Why      string
	} `json:"decision"`
}

const (
	topTimeout = 5 * time.Second
	// topBytes of an answer are read at most.
	topBytes = 4 << 20
)

// lookAt asks once.
func lookAt(ctx context.Context, address string) ([]topRow, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/consumers", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking the program on %s: %w", address, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking the program on %s: %s", address, res.Status)
	}
	var all struct{ Consumers []topRow }
	if err := json.NewDecoder(io.LimitReader(res.Body, topBytes)).Decode(&all); err != nil {
		return nil, fmt.Errorf("asking the program on %s: its answer is not that of longshore: %w", address, err)
	}
	return all.Consumers, nil
}

// A topTable shows rows for people, on a terminal in the place of those before.
type topTable struct {
	out    io.Writer
	redraw bool
	was    map[string]topRow
	at     time.Time
}

func (t *topTable) keep(rows []topRow, now time.Time) {
	t.was, t.at = map[string]topRow{}, now
	for _, r := range rows {
		t.was[r.Consumer] = r
	}
}

func (t *topTable) print(rows []topRow, now time.Time) error {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CONSUMER\tSTATE\tWAITING\tHANDLED/S\tSKIPPED/S\tFAILED/S\tWORKERS\tBUSY\tSTUCK\t"+
		"IN FLIGHT\tRETRY\tPUT OFF\tBEHIND\tDEAD\tLAST DECISION")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d of %d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n",
			escape(r.Consumer), r.state(), figure(r.Lag),
			t.rate(r, now, topRow.handled), t.rate(r, now, topRow.skipped), t.rate(r, now, topRow.failed),
			r.Workers.Busy+r.Workers.Idle, r.Limits.Max, r.Workers.Busy, r.Workers.Stuck, r.InFlight,
			r.Parked-r.PutOff, r.PutOff, r.Behind, r.Dead, r.decision())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	t.keep(rows, now)
	if t.redraw {
		if _, err := io.WriteString(raw(t.out), "\x1b[H\x1b[2J"); err != nil {
			return err
		}
	}
	width := columns(t.out)
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(t.out, cut(strings.TrimRight(line, " \n"), width)); err != nil {
			return err
		}
	}
	return nil
}

func (r topRow) handled() int64 { return r.Handled }
func (r topRow) skipped() int64 { return r.Skipped }
func (r topRow) failed() int64  { return r.Failed }

func (r topRow) state() string {
	switch {
	case r.Paused:
		return "paused"
	case r.State == "running" && !r.Ready:
		return "no contact"
	}
	return escape(r.State)
}

func (r topRow) decision() string {
	if r.Decision == nil {
		return "-"
	}
	return fmt.Sprintf("%d → %d: %s", r.Decision.From, r.Decision.To, escape(r.Decision.Why))
}

// rate is how much a figure has grown a second since the look before.
func (t *topTable) rate(r topRow, now time.Time, of func(topRow) int64) string {
	was, ok := t.was[r.Consumer]
	since := now.Sub(t.at).Seconds()
	if !ok || since <= 0 || of(r) < of(was) { // it was started again
		return "-"
	}
	return strconv.FormatFloat(float64(of(r)-of(was))/since, 'f', 0, 64)
}
