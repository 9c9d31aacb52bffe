package daemon

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// given are the ports that FreePort gave, each with the socket that holds it.
var given sync.Map

// FreePort finds a port that nobody listens on, and gives each once: tests that run side by side do not take one from each other
// while its server is down, be they of one process or of several. What holds the port is a UDP socket of the same number, until
// the process ends: TCP has numbers of its own. The port lies below the range from which outgoing connections get theirs, so that
// none of them takes it while the server is down.
func FreePort() (int, error) {
	for range 1000 {
		port := 15000 + rand.IntN(15000)
		at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		held, err := net.ListenPacket("udp", at)
		if err != nil {
			continue // another process has it, or this one
		}
		l, err := net.Listen("tcp", at)
		if err != nil {
			_ = held.Close()
			continue
		}
		given.Store(port, held)
		return port, l.Close()
	}
	return 0, errors.New("no free port between 15000 and 30000")
}
