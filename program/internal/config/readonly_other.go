//go:build !linux

package config

// onReadOnly knows nothing of mounts here.
func onReadOnly(string) bool { return false }
