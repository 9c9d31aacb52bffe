package program

import (
	"math"
	"net"
	"strconv"

	"github.com/longshoremq/longshore/program/internal/config"
)

// defaultPort is where the embedded server listens unless told otherwise, and where produce looks for one.
const defaultPort = 4222

// embeddedURL is where the embedded server is. A port that is none is found where it stands in the file, and not a second time in
// a URL that nobody wrote.
func embeddedURL(e config.Embedded) string {
	port := e.Port
	if port < 1 || port > math.MaxUint16 {
		port = defaultPort
	}
	return "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
