package plaintext_test

import (
	"testing"

	"github.com/longshoremq/longshore/internal/plaintext"
)

func TestExposed(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": false, "127.0.0.1": false, "127.8.8.8": false, "::1": false, "::ffff:127.0.0.1": false,
		"": true, "localhost.example": true, "LOCALHOST": true, "10.0.0.1": true, "127.0.0.1.example": true, "::": true,
		"0.0.0.0": true, "[::1]": true,
	} {
		if got := plaintext.Exposed(host); got != want {
			t.Errorf("%q: %v, want %v", host, got, want)
		}
	}
}
