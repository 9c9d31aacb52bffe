package kafkabroker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/longshoremq/longshore/broker"
)

// selfSigned makes a certificate for 127.0.0.1 that is its own authority, for both ends.
func selfSigned(t *testing.T) (certFile, keyFile string, pair tls.Certificate, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	if err := errors.Join(os.WriteFile(certFile, certPEM, 0o600), os.WriteFile(keyFile, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return certFile, keyFile, pair, pool
}

// TestTLS proves mutual TLS, and that a mismatch of TLS and plaintext is told within the dial timeout, with the broker's address (b05).
func TestTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, pair, pool := selfSigned(t)
	secure := startCluster(t, kfake.SeedTopics(1, "t"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}))
	plain := startCluster(t, kfake.SeedTopics(1, "t"))
	with := TLS{CAFile: certFile, CertFile: certFile, KeyFile: keyFile}
	cfg := func(c *kfake.Cluster, conf TLS) Config {
		return Config{Connection: Connection{Brokers: c.ListenAddrs(), TLS: conf, DialTimeout: 500 * time.Millisecond}, Group: "g", Topics: []string{"t"}}
	}
	r := startRunner(t, cfg(secure, with))
	eventually(t, "it has a claim", func() bool { _, ok := r.event(broker.Assigned, ""); return ok })
	for name, c := range map[string]Config{
		"TLS to a plaintext port": cfg(plain, with), "plaintext to a TLS port": cfg(secure, TLS{}), "no certificate": cfg(secure, TLS{CAFile: certFile}), "unknown authority": cfg(secure, TLS{Enabled: true}),
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			told := make(chan error, 100)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			opened := make(chan error, 1)
			go func() {
				_, err := s.Open(ctx, broker.Options{Budget: broker.Budget{Messages: 1, Bytes: 1}, Observe: func(e broker.Event) {
					if e.Kind == broker.Down {
						told <- e.Err
					}
				}})
				opened <- err
			}()
			select {
			case err := <-told:
				if err == nil {
					t.Error("Down without an error")
				} else {
					t.Log(err)
				}
			case <-time.After(patience):
				t.Error("nothing was told")
			}
			cancel()
			if err := <-opened; err == nil {
				t.Error("Open says nil")
			}
			_ = s.Close(context.Background())
		})
	}
	for name, conf := range map[string]TLS{"no file": {CAFile: "/nonexistent"}, "a key that does not fit": {CertFile: keyFile, KeyFile: keyFile}, "half": {CertFile: certFile}} {
		if _, err := New(cfg(secure, conf)); err == nil {
			t.Errorf("%s: New says nil", name)
		}
	}
}
