package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writePair writes a self-signed certificate and its key.
func writePair(t *testing.T, dir, name string, from, to time.Time) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: kder}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestCertificates is bad input b04.
func TestCertificates(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := writePair(t, dir, "good", now.Add(-time.Hour), now.Add(time.Hour))
	old, oldKey := writePair(t, dir, "old", now.Add(-48*time.Hour), now.Add(-24*time.Hour))
	early, earlyKey := writePair(t, dir, "early", now.Add(24*time.Hour), now.Add(48*time.Hour))
	for tls, want := range map[string]string{
		"{ca_file: " + cert + ", cert_file: " + cert + ", key_file: " + key + "}": "",
		"{cert_file: " + cert + ", key_file: " + oldKey + "}": "tls.cert_file: " + cert + " and key_file " +
			oldKey + ": tls: private key does not match",
		"{cert_file: " + old + ", key_file: " + oldKey + "}":     "tls.cert_file: " + old + " has expired on ",
		"{cert_file: " + early + ", key_file: " + earlyKey + "}": "tls.cert_file: " + early + " is not valid before ",
		"{cert_file: " + cert + "}":                              "tls.cert_file: is set and tls.key_file is not",
		"{key_file: " + key + "}":                                "tls.key_file: is set and tls.cert_file is not",
		"{cert_file: " + cert + ", key_file: " + dir + "}":       "tls.key_file: " + dir + " is a folder",
		"{cert_file: " + cert + ", key_file: /no/such}":          "tls.key_file: open /no/such: no such file",
		"{ca_file: /no/such}":                                    "tls.ca_file: open /no/such: no such file",
		"{ca_file: " + key + "}":                                 "tls.ca_file: " + key + " holds no certificate",
	} {
		d := parse("consumers:\n  orders:\n    routes: [{handler: log}]\n    source:\n      nats: {url: 'tls://h', stream: S, "+
			"durable: d, tls: "+tls+"}\n", nil)
		got := findings(d)
		switch {
		case want == "" && len(got) == 0:
		case want == "" || len(got) != 1 || !strings.HasPrefix(got[0], "c.yaml:5: consumers.orders.source.nats."+want):
			t.Errorf("%s: %q, want %q", tls, got, want)
		}
	}
}
