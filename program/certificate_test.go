package program

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/longshoremq/longshore/internal/replicas"
)

// TestScalerCertificateIsRenewed: who connects sees the certificate that is in the files by then, or the last good one where
// there is none just now.
func TestScalerCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	_, first := selfSigned(t, dir)
	g, err := newScalerServer(fakeTargets("orders"), replicas.Settings{}, cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serveGRPC(t.Context(), g, l) }()
	connects := func(trusted *x509.CertPool) error {
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1", NextProtos: []string{"h2"}})
		if err != nil {
			return err
		}
		return c.Close()
	}
	if err := connects(first); err != nil {
		t.Errorf("the first certificate: %v", err)
	}
	_, second := selfSigned(t, dir)
	if err := connects(second); err != nil {
		t.Errorf("the renewed one: %v", err)
	}
	if connects(first) == nil {
		t.Error("who trusts the first one only connects still")
	}
	if err := os.WriteFile(cert, []byte("half of one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := connects(second); err != nil {
		t.Errorf("while the file has none: %v", err)
	}
	g.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
