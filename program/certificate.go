package program

import (
	"crypto/tls"
	"sync/atomic"

	"github.com/longshoremq/longshore/internal/namedfile"
)

// A certificate is that of the scaler, in two files that somebody may renew while it runs. Safe for concurrent use.
type certificate struct {
	certFile, keyFile string
	last              atomic.Pointer[tls.Certificate] // that could be read
}

func newCertificate(certFile, keyFile string) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile}
	pair, err := namedfile.KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	c.last.Store(&pair)
	return c, nil
}

// get reads the files for each connection; KEDA has one for long. While they cannot be read, as between the writes of the one and
// the other, it is what they were.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair, err := namedfile.KeyPair(c.certFile, c.keyFile); err == nil {
		c.last.Store(&pair)
	}
	return c.last.Load(), nil
}
