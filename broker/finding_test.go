package broker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
)

func ExampleFindings() {
	fs := broker.Findings{Of: "redisbroker"}
	fs.Check(false, "Group", "is missing")
	fs.Check(4 >= 8, "Pool.Max", "is %d, below %v, %d", 4, broker.Field("Pool.Min"), 8)
	err := fmt.Errorf("starting: %w", fs.Err())
	fmt.Println(err)
	inFile := func(f broker.Field) string { return strings.ToLower(string(f)) }
	for _, f := range broker.FindingsOf(err) {
		fmt.Println("-", inFile(f.Field), f.Problem(inFile))
	}
	// Output:
	// starting: redisbroker: Group is missing
	// redisbroker: Pool.Max is 4, below Pool.Min, 8
	// - group is missing
	// - pool.max is 4, below pool.min, 8
}

func TestFindings(t *testing.T) {
	var fs broker.Findings
	if fs.Check(true, "A", "is wrong"); fs.Err() != nil || broker.FindingsOf(nil) != nil ||
		broker.FindingsOf(errors.New("other")) != nil {
		t.Errorf("nothing was wrong: %v", fs.Err())
	}
	cause := errors.New("no such thing")
	fs.Add("", "is refused: %v", cause)
	fs.Add("B[1]", "is empty")
	if err := fs.Err(); !errors.Is(err, cause) || err.Error() != "is refused: no such thing\nB[1] is empty" {
		t.Errorf("got %q", err)
	}
}
