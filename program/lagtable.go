package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// A lagReport is what lag prints.
type lagReport struct {
	Time string   `json:"time"`
	Rows []lagRow `json:"rows"`
	// Lag and Finished are sums of the rows that are known; nil where there are rows, and none is.
	Lag      *int64 `json:"lag"`
	Finished *int64 `json:"finished"`
	Unknown  int    `json:"unknown_rows"`
}

// sum adds up the rows.
func (r *lagReport) sum() {
	var lag, finished int64
	for _, row := range r.Rows {
		if row.Lag == nil {
			r.Unknown++
			continue
		}
		lag, finished = lag+*row.Lag, finished+*row.Finished
	}
	if r.Unknown == 0 || r.Unknown < len(r.Rows) {
		r.Lag, r.Finished = &lag, &finished
	}
}

func (r lagReport) printJSON(w io.Writer) error {
	if r.Rows == nil {
		r.Rows = []lagRow{}
	}
	return json.NewEncoder(w).Encode(r)
}

// A lagTable shows reports for people, on a terminal each in the place of the one before.
type lagTable struct {
	out    io.Writer
	redraw bool
}

func (t *lagTable) print(r lagReport) error {
	var b bytes.Buffer
	if t.redraw {
		if _, err := io.WriteString(raw(t.out), "\x1b[H\x1b[2J"); err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CONSUMER\tREADS\tAS\tPROTOCOL\tCOMMITTED\tEND\tLAG\tFINISHED")
	for _, row := range r.Rows {
		reads, as := row.Stream, row.Durable
		if row.Broker == "kafka" {
			if reads, as = row.Topic, row.Group; row.Partition != nil {
				reads += "/" + strconv.Itoa(int(*row.Partition))
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", dash(row.Consumer), dash(escape(reads)), escape(as), dash(row.Protocol),
			figure(row.Committed), figure(row.End), figure(row.Lag), figure(row.Finished))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	b.WriteString(r.total() + "\n")
	_, err := t.out.Write(b.Bytes())
	return err
}

// total is what is known of all rows together.
func (r lagReport) total() string {
	if r.Lag == nil {
		return "lag unknown"
	}
	text := fmt.Sprintf("lag %d, of these finished %d", *r.Lag, *r.Finished)
	if r.Unknown > 0 {
		text += fmt.Sprintf("; %d unknown", r.Unknown)
	}
	return text
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func figure(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}
