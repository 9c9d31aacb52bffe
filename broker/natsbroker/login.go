package natsbroker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/namedfile"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// auth is the login. What handlers of nats.go give at each connect was read by CheckLogin right before, when the link dialed.
func (c Connection) auth() ([]nats.Option, error) {
	if err := c.readLogin(""); err != nil {
		return nil, err
	}
	switch {
	case c.User != "":
		return []nats.Option{nats.UserInfoHandler(func() (string, string) { return c.User, c.Password.Reveal() })}, nil
	case !c.Token.IsZero():
		return []nats.Option{nats.TokenHandler(c.Token.Reveal)}, nil
	case c.NKeySeedFile != "":
		opt, err := nats.NkeyOptionFromSeed(c.NKeySeedFile)
		return []nats.Option{opt}, err // was checked
	case c.CredsFile != "":
		return []nats.Option{nats.UserCredentials(c.CredsFile)}, nil
	}
	return nil, nil
}

// seedReplaced says whether NKeySeedFile has another user's seed by now.
func (c Connection) seedReplaced(public string) bool {
	if c.NKeySeedFile == "" || c.CheckLogin() != nil {
		return false
	}
	var now nats.Options
	opt, err := nats.NkeyOptionFromSeed(c.NKeySeedFile)
	return err == nil && opt(&now) == nil && now.Nkey != public
}

// exposed names the files with secrets that other users of the machine may read.
func (c Connection) exposed() []error {
	var errs []error
	files := map[string]string{"NKeySeedFile": c.NKeySeedFile, "CredsFile": c.CredsFile, "TLS.KeyFile": c.TLS.KeyFile}
	for field, file := range files {
		if file == "" {
			continue
		}
		if st, err := os.Stat(file); err == nil && st.Mode().Perm()&0o077 != 0 {
			errs = append(errs, fmt.Errorf("natsbroker: %s %s has mode %04o: others may read it; 0600 is enough",
				field, file, st.Mode().Perm()))
		}
	}
	return errs
}

// CheckLogin reads NKeySeedFile, CredsFile, and the files of Password and Token (broker.SecretFile), as each connect does, and
// says what is wrong with them, as *broker.Findings. It connects to nothing.
func (c Connection) CheckLogin() error { return c.readLogin(findings().Of) }

// readLogin is CheckLogin with another name of the Config; empty: who asks says who it is.
func (c Connection) readLogin(of string) error {
	f := &broker.Findings{Of: of}
	for field, secret := range map[broker.Field]broker.Secret{"Password": c.Password, "Token": c.Token} {
		if _, err := secret.Read(); err != nil {
			f.Add(field, "cannot be read: %v", err)
		}
	}
	if file := c.NKeySeedFile; file != "" {
		_, err := namedfile.Read(file) // the client reads it without a bound
		if err == nil {
			_, err = nats.NkeyOptionFromSeed(file)
		}
		if err != nil {
			f.Add("NKeySeedFile", "%s holds no user's seed: %v", file, err)
		}
	}
	if file := c.CredsFile; file != "" {
		if err := checkCreds(file); err != nil {
			f.Add("CredsFile", "%s holds no user's JWT and seed: %v", file, err)
		}
	}
	return f.Err()
}

func checkCreds(file string) error {
	content, err := namedfile.Read(file)
	if err != nil {
		return err
	}
	defer clear(content)
	if token, err := nkeys.ParseDecoratedJWT(content); err != nil || strings.Count(token, ".") != 2 {
		return errors.New("no JWT")
	}
	key, err := nkeys.ParseDecoratedUserNKey(content)
	if err != nil {
		return err
	}
	key.Wipe()
	return nil
}

func (c Connection) secure() ([]nats.Option, error) {
	if !c.TLS.wanted() {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLS.ServerName}
	opts := []nats.Option{nats.Secure(cfg)}
	if c.TLS.CAFile != "" {
		if _, err := c.TLS.authorities(); err != nil {
			return nil, err
		}
		opts = append(opts, nats.ClientTLSConfig(nil, c.TLS.authorities))
	}
	if c.TLS.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := namedfile.KeyPair(c.TLS.CertFile, c.TLS.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("TLS.CertFile %s, TLS.KeyFile %s: %w", c.TLS.CertFile, c.TLS.KeyFile, err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	if c.TLS.HandshakeFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts, nil
}

// authorities reads CAFile.
func (t TLS) authorities() (*x509.CertPool, error) {
	pem, err := namedfile.Read(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("TLS.CAFile: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("TLS.CAFile %s holds no certificate", t.CAFile)
	}
	return pool, nil
}
