package program

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDLQSummaryOfAPipe: a file that is a pipe can be read once.
func TestDLQSummaryOfAPipe(t *testing.T) {
	t.Parallel()
	onBothBrokers(t, func(t *testing.T, f *dlqField) {
		f.bury(t, "orders", "good")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		_, err = w.WriteString(readFile(t, "/", f.file))
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		out, err := run(t.Context(), "dlq", "list", "--summary", "-c", fmt.Sprintf("/dev/fd/%d", r.Fd()))
		if err != nil || !strings.HasSuffix(out, "1 letter, 1 waiting\n") {
			t.Errorf("%q: %v", out, err)
		}
	})
}
