package config

import (
	"crypto/tls"
	"crypto/x509"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/namedfile"
)

// A secret is a field and the file that may hold it instead. Its path without "_file" is the field's.
type secret struct {
	value *broker.Secret
	file  string
}

// secrets are all of them, by the path of the field, in the order of the consumers' names.
func (f *File) secrets() iter.Seq2[string, secret] {
	return func(yield func(string, secret) bool) {
		if a := f.Admin; a != nil && !yield("admin.token", secret{&a.Token, a.TokenFile}) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(f.Consumers)) {
			c := f.Consumers[name]
			if c == nil {
				continue
			}
			for _, in := range c.Reads() {
				at := "consumers." + name + "." + in.Name
				if key, n, ok := in.nats(); ok && (!yield(at+"."+key+".password", secret{&n.Password, n.PasswordFile}) ||
					!yield(at+"."+key+".token", secret{&n.Token, n.TokenFile})) {
					return
				}
				if k := in.Kafka; k != nil && k.SASL != nil &&
					!yield(at+".kafka.sasl.password", secret{&k.SASL.Password, k.SASL.PasswordFile}) {
					return
				}
			}
		}
	}
}

// secrets are what nobody else should read: what stands in the file itself, and the files that hold it.
type secrets struct {
	*report
	mode   os.FileMode     // of the file; 0: not known
	filled map[string]bool // what came from the environment, by path
	// decoded are the options under with that a handler has for secrets.
	decoded map[string]bool
}

// read takes a secret from its file, which the adapters read again.
func (s *secrets) read(path string, one secret) {
	if one.file == "" {
		if s.Has(path) && one.value.IsZero() {
			s.here[path] = s.filled[path]
			s.Find(path, "is empty")
		}
		return
	}
	if s.Has(path) {
		s.Find(path+"_file", "is set, and so is %s: set one", path)
		return
	}
	s.readPrivate(path+"_file", one.file, func(name string) (_ []byte, err error) {
		*one.value, err = broker.SecretFile(name)
		return nil, err
	})
}

// warnOpen warns of a secret that stands in the file itself, and others can read the file.
func (s *secrets) warnOpen(path string) {
	if s.mode&0o077 != 0 && !s.filled[path] {
		s.warn(path, "is a secret, and %s can be read by others (mode %04o); chmod 600 it, or take the secret from ${NAME} or a file "+
			"of its own", s.Name, s.mode)
	}
}

// readPrivate reads a file that others should not read.
func (s *secrets) readPrivate(path, file string, read func(name string) ([]byte, error)) ([]byte, bool) {
	content, err := read(file)
	if err != nil {
		s.here[path] = true
		s.Find(path, "%v", err)
		return nil, false
	}
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 && !fixed(file) {
		s.warn(path, "%s can be read by others (mode %04o); chmod 600 it", file, info.Mode().Perm())
	}
	return content, true
}

// fixed says whether nobody here can change a file's mode: what is mounted read-only, as Secret volumes of Kubernetes are, and
// the credentials of systemd.
func fixed(file string) bool {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	return dir != "" && filepath.Dir(file) == filepath.Clean(dir) || onReadOnly(file)
}

// enableTLS: a section tls demands TLS, whatever it has.
func (d *Document) enableTLS() {
	for _, r := range d.reads() {
		if key, n, ok := r.nats(); ok {
			n.TLS.Enabled = d.Has(r.at() + "." + key + ".tls")
		}
		if r.Kafka != nil {
			r.Kafka.TLS.Enabled = d.Has(r.at() + ".kafka.tls")
		}
	}
}

// checkTLS reads the files that TLS names, so that a mistake in them is known before anything runs.
func (s *secrets) checkTLS(path, caFile, certFile, keyFile string, now time.Time) {
	if caFile != "" {
		if pem, err := namedfile.Read(caFile); err != nil {
			s.Find(path+".ca_file", "%v", err)
		} else if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			s.Find(path+".ca_file", "%s holds no certificate", caFile)
		}
	}
	if certFile == "" || keyFile == "" { // one without the other is the adapter's to find
		return
	}
	cert, err := namedfile.Read(certFile)
	if err != nil {
		s.Find(path+".cert_file", "%v", err)
	}
	key, ok := s.readPrivate(path+".key_file", keyFile, namedfile.Read)
	if err != nil || !ok {
		return
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		s.Find(path+".cert_file", "%s and key_file %s: %v", certFile, keyFile, err)
		return
	}
	if end := pair.Leaf.NotAfter; now.After(end) {
		s.Find(path+".cert_file", "%s has expired on %s", certFile, end.Format(time.DateOnly))
	} else if start := pair.Leaf.NotBefore; now.Before(start) {
		s.Find(path+".cert_file", "%s is not valid before %s", certFile, start.Format(time.DateOnly))
	}
}
