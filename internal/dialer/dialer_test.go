package dialer_test

import (
	"testing"

	"github.com/longshoremq/longshore/internal/dialer"
)

func TestUnknownTypesPanic(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a connection that nobody told of was accepted")
		}
	}()
	dialer.Use(new(struct{}), nil)
}
