package config_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestVeryManyMistakes: a file of unknown keys is told in the time that it takes to read it, not in its square, which is minutes.
func TestVeryManyMistakes(t *testing.T) {
	const keys = 200_000
	var file strings.Builder
	file.WriteString(least)
	for i := range keys {
		fmt.Fprintf(&file, "x%d: 1\n", i)
	}
	if got := findings(parse(file.String(), nil)); len(got) != keys {
		t.Errorf("%d findings, want %d", len(got), keys)
	}
}
