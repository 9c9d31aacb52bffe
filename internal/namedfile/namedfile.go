// Package namedfile reads files that a configuration or a flag names: certificates, keys, logins, payloads. None of them is read
// to an end that it does not have.
package namedfile

import (
	"crypto/tls"
	"fmt"
	"io"
	"os"
)

// Most is how many bytes a file of certificates, a key or a login has at most.
const Most = 4 << 20

// Read reads a file that is read again later, by each connect for example. A pipe is refused, since it gives what it has once,
// and keeps its reader while nobody writes; a device is, too.
func Read(name string) ([]byte, error) {
	if info, err := os.Stat(name); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a pipe or a device, and no file that can be read again", name)
	}
	return Once(name, Most)
}

// Once reads what may be a pipe, up to most bytes.
func Once(name string, most int) ([]byte, error) {
	f, err := os.Open(name) // #nosec G304 -- the caller, or the configuration, names it
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a folder", name)
	}
	return All(f, name, most)
}

// All reads r, which is called name, up to most bytes.
func All(r io.Reader, name string, most int) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err == nil && len(content) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return content, err
}

// KeyPair is tls.LoadX509KeyPair, within Most.
func KeyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := Read(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := Read(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}
