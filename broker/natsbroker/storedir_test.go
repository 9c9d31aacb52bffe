//go:build !linux

package natsbroker_test

import "testing"

// storeDir is where a server stores.
func storeDir(t testing.TB) string { return t.TempDir() }
