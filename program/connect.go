package program

import (
	"net"
	"strconv"

	"github.com/longshoremq/longshore/program/internal/config"
)

// defaultPort is where the embedded server listens unless told otherwise, and where produce looks for one.
const defaultPort = 4222

func embeddedURL(e config.Embedded) string {
	port := e.Port
	if port == 0 {
		port = defaultPort
	}
	return "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
