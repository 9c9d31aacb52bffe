package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
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

// TestLoginFiles: a file that holds no login is found by its content, and nothing of it is shown.
func TestLoginFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	user, err := nkeys.CreateUser()
	account, aerr := nkeys.CreateAccount()
	if err := errors.Join(err, aerr); err != nil {
		t.Fatal(err)
	}
	seed, serr := user.Seed()
	other, oerr := account.Seed()
	if err := errors.Join(serr, oerr); err != nil {
		t.Fatal(err)
	}
	creds := fmt.Sprintf("-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n"+
		"-----BEGIN USER NKEY SEED-----\n%s\n------END USER NKEY SEED------\n", seed)
	junk := write("junk", "hunter2")
	for login, want := range map[string]string{
		"nkey_seed_file: " + write("seed", string(seed)+"\n"): "",
		"creds_file: " + write("creds", creds):                "",
		"nkey_seed_file: " + junk:                             "nkey_seed_file: " + junk + " holds no user's seed: ",
		"nkey_seed_file: " + write("account", string(other)):  "nkey_seed_file: " + dir + "/account holds no user's seed: ",
		"creds_file: " + junk:                                 "creds_file: " + junk + " holds no user's JWT and seed: no JWT",
		"creds_file: " + write("empty", ""):                   "creds_file: " + dir + "/empty holds no user's JWT and seed: ",
		"creds_file: " + write("half", creds[:80]):            "creds_file: " + dir + "/half holds no user's JWT and seed: ",
		"creds_file: " + dir:                                  "creds_file: " + dir + " is a folder",
		"creds_file: /no/such":                                "creds_file: open /no/such: no such file",
	} {
		for _, section := range []string{"nats: {stream: S, durable: d, ", "nats_core: {subjects: [a], queue: q, "} {
			got := findings(parse("consumers:\n  orders:\n    routes: [{handler: log}]\n    source:\n      "+section+
				"url: 'nats://h', "+login+"}\n", nil))
			name, _, _ := strings.Cut(section, ":")
			switch {
			case want == "" && len(got) == 0:
			case want == "" || len(got) != 1 || !strings.HasPrefix(got[0], "c.yaml:5: consumers.orders.source."+name+"."+want) ||
				strings.Contains(got[0], "hunter2"):
				t.Errorf("%s: %q, want %q", login, got, want)
			}
		}
	}
}

// TestEmptyIsNotDefault: what is written and empty, as by a variable that is not set, is no wish for the default: without its
// file a certificate would be checked by the authorities of the system, and a login left out.
func TestEmptyIsNotDefault(t *testing.T) {
	nats, kafka := "{nats: {url: 'tls://h', stream: S, durable: d, %s}}", "{kafka: {brokers: ['h:1'], topics: [a], group: g, %s}}"
	for _, c := range []struct{ source, text, want string }{
		{nats, "tls: {ca_file: '${CA:-}'}", "nats.tls.ca_file"},
		{nats, "tls: {cert_file: '', key_file: ''}", "nats.tls.cert_file nats.tls.key_file"},
		{nats, "tls: {server_name: ''}", "nats.tls.server_name"},
		{nats, "creds_file: ''", "nats.creds_file"},
		{nats, "nkey_seed_file: ''", "nats.nkey_seed_file"},
		{nats, "token_file: ''", "nats.token_file"},
		{nats, "domain: ''", "nats.domain"},
		{kafka, "tls: {ca_file: ''}", "kafka.tls.ca_file"},
		{kafka, "tls: {cert_file: '', key_file: ''}", "kafka.tls.cert_file kafka.tls.key_file"},
	} {
		got := findings(parse("consumers:\n  orders:\n    routes: [{handler: log}]\n    source: "+
			fmt.Sprintf(c.source, c.text)+"\n", nil))
		for i, path := range strings.Fields(c.want) {
			if want := "c.yaml:4: consumers.orders.source." + path + ": is empty"; i >= len(got) || got[i] != want {
				t.Errorf("%s: %q, want %q", c.text, got, want)
			}
		}
	}
	wantFindings(t, parse(strings.Replace(least, "{handler: log}", "{match: '${M:-}', type: '', handler: log}", 1)+
		"admin: {listen: '', token_file: ''}\nembedded: {dir: ''}\n", nil),
		"4: consumers.orders.routes[0].match: is empty", "4: consumers.orders.routes[0].type: is empty",
		"5: admin.listen: is empty", "5: admin.token_file: is empty", "6: embedded.dir: is empty")
}
