package daemon

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// given are the ports that FreePort gave, each once: tests that run side by side do not take one from each other while its server
// is down.
var given sync.Map

// FreePort finds a port that nobody listens on, and gives each once in a process. It lies below the range from which outgoing
// connections get theirs, so that none of them takes it while the server is down.
func FreePort() (int, error) {
	for range 1000 {
		port := 15000 + rand.IntN(15000)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 15000 and 30000")
}
