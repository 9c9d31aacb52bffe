// The tests of this package are inside it. A third are of parts that have no door outwards: decisions and decoders. The others
// are of whole sources. They share with the first what makes batches of records and answers byte by byte, and the fake's faults
// are said in the protocol's keys and fields, none of which are for users.
package kafkabroker

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if topic := os.Getenv("KAFKABROKER_CHILD"); topic != "" {
		memoryChild(topic)
		return
	}
	if args := os.Getenv(crashEnv); args != "" {
		crashChild(strings.Fields(args))
		return
	}
	_ = flag.Set("test.parallel", "16") // most tests wait for sessions; the command line has the last word
	code := m.Run()
	stopSharedKafka()
	if err := leaked(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// leaked waits for goroutines to end: those of a cluster in this process take a while on a busy machine, longer than goleak does.
// Where a cluster is closed while a function runs that stands in for it, it can keep a lock for which that one's goroutine waits.
func leaked() (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = goleak.Find(goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*Cluster).runControl.func1")); err == nil {
			return nil
		}
	}
	return err
}
