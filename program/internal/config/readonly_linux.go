package config

import "syscall"

// stReadOnly is ST_RDONLY of statfs(2).
const stReadOnly = 1

// onReadOnly says whether a file is on a mount that is read-only, as the Secret volumes of Kubernetes are.
func onReadOnly(file string) bool {
	var s syscall.Statfs_t
	return syscall.Statfs(file, &s) == nil && s.Flags&stReadOnly != 0
}
