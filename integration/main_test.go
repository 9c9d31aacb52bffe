//go:build unix

package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes the test binary a consumer process: its value is a consumerConfig. So the processes that are killed run the code
// that was built for this test, race detector included.
const childEnv = "LONGSHORE_TEST_CONSUMER"

// children are the mains of such processes, by the variable that has their configuration.
var children = map[string]func(string) int{childEnv: consumerMain, emitterEnv: emitterMain}

func TestMain(m *testing.M) {
	for env, run := range children {
		if s := os.Getenv(env); s != "" {
			os.Exit(run(s))
		}
	}
	if os.Getenv(hangEnv) != "" {
		hangMain() // does not return
	}
	waitTogether()
	goleak.VerifyTestMain(tests{m}, goleak.Cleanup(func(code int) {
		if programDir != "" {
			_ = os.RemoveAll(programDir)
		}
		os.Exit(code)
	}))
}

// abreast is how many rows run side by side. A row waits for leases, sessions and backoffs most of its time, so it is more than
// there are processors.
const abreast = 12

// waitTogether lets so many tests run side by side, unless the command line says how many.
func waitTogether() {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if said {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(abreast)); err != nil {
		panic(err)
	}
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
