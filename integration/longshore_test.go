//go:build unix

package integration

import (
	"context"
	"errors"
)

func runLongshore(context.Context, consumerConfig, *work) error { return errors.New("not yet") }
