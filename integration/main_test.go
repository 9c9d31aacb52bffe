//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes the test binary a consumer process: its value is a consumerConfig. So the processes that are killed run the code that was
// built for this test, race detector included.
const childEnv = "LONGSHORE_TEST_CONSUMER"

func TestMain(m *testing.M) {
	if s := os.Getenv(childEnv); s != "" {
		os.Exit(consumerMain(s))
	}
	goleak.VerifyTestMain(tests{m}, goleak.Cleanup(func(code int) {
		if programDir != "" {
			_ = os.RemoveAll(programDir)
		}
		os.Exit(code)
	}))
}

// inFull says whether kill loops and faults run in full length (make chaos) or in short.
func inFull() bool { return os.Getenv("LONGSHORE_CHAOS") != "" }

// lengths picks the short or the full value.
func lengths[T any](short, full T) T {
	if inFull() {
		return full
	}
	return short
}

// report prints one line of JSON for a row of the harness.
func report(row any) {
	b, err := json.Marshal(row)
	if err != nil {
		panic(err) // a row is a struct of numbers and words
	}
	fmt.Println(string(b))
}
