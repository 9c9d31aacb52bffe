// Package plaintext decides where a secret may be sent without TLS.
package plaintext

import "net"

// Exposed says whether others can read what goes to a host without TLS: whether it leaves this machine. A name is not looked up:
// what answers may change, so only localhost and loopback addresses are this machine.
func Exposed(host string) bool {
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}
