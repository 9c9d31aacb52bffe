package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/longshoremq/longshore/broker/natsbroker"
	"github.com/longshoremq/longshore/internal/namedfile"
)

// A natsLink is where the NATS server of a section is, and who we are to it.
type natsLink struct {
	*natsbroker.Connection
	*NATSAccess
}

func (n *NATS) link() natsLink     { return natsLink{&n.Connection, &n.NATSAccess} }
func (n *NATSCore) link() natsLink { return natsLink{&n.Connection, &n.NATSAccess} }

// nats is the section of NATS that a source has, by its key; ok is false where it has none.
func (s Source) nats() (key string, l natsLink, ok bool) {
	switch {
	case s.NATS != nil:
		return "nats", s.NATS.link(), true
	case s.NATSCore != nil:
		return "nats_core", s.NATSCore.link(), true
	}
	return "", natsLink{}, false
}

// Embedded says whether a source reads from the server inside the process.
func (s Source) Embedded() bool {
	_, l, ok := s.nats()
	return ok && l.embedded()
}

// subjects are those that a source on NATS reads, as far as the file says, and the key of their section.
func (s Source) subjects() (key string, subjects []string) {
	switch {
	case s.NATS != nil:
		return "nats", s.NATS.Subjects
	case s.NATSCore != nil:
		return "nats_core", s.NATSCore.Subjects
	}
	return "", nil
}

// embedded says whether the server is the one inside the process.
func (l natsLink) embedded() bool { return l.URL == "" && len(l.URLs) == 0 }

// servers are the URLs, however they were given.
func (l natsLink) servers() []string {
	if l.URL != "" {
		return []string{l.URL}
	}
	return l.URLs
}

// at are the URLs to connect to; embedded is that of the server inside the process, or empty where nothing connects.
func (l natsLink) at(embedded string) []string {
	if l.embedded() && embedded != "" {
		return []string{embedded}
	}
	return l.servers()
}

// checkLink: a password in a URL is warned of, and a user without one, files can be read, and without a url there is what the
// embedded server has, which knows neither users nor TLS.
func (sc sectionCheck) checkLink(l natsLink) {
	for i, server := range l.servers() {
		path := sc.at + ".url"
		if l.URL == "" {
			path = sc.at + ".urls[" + strconv.Itoa(i) + "]"
		}
		if strings.Contains(server, "@") {
			sc.secrets.warnOpen(path)
		}
	}
	if l.User != "" && !sc.has(".password") && !sc.has(".password_file") {
		sc.warn(sc.at+".user", "is set and password is not: the login is a name alone, which few servers take")
	}
	for _, private := range [][2]string{{".nkey_seed_file", l.NKeySeedFile}, {".creds_file", l.CredsFile}} {
		if key, file := private[0], private[1]; file != "" {
			sc.secrets.readPrivate(sc.at+key, file, namedfile.Read)
		}
	}
	sc.FindConfig(sc.at, l.Connection, l.CheckLogin()) // of a file that cannot be read, the document has the first that was said
	sc.secrets.checkTLS(sc.at+".tls", l.TLS.CAFile, l.TLS.CertFile, l.TLS.KeyFile, time.Now())
	if sc.has(".url") || sc.has(".urls") {
		sc.checkPlaintext(l)
		return
	}
	for _, name := range []string{
		"user", "password", "password_file", "token", "token_file", "nkey_seed_file", "creds_file", "tls", "domain", "plaintext_auth",
		"inbox_prefix",
	} {
		if sc.has("." + name) {
			sc.find("."+name, "is set and url is not: the embedded server has no such thing")
		}
	}
}

// checkPlaintext: what allows a password or a token without TLS has one to allow.
func (sc sectionCheck) checkPlaintext(l natsLink) {
	sent := l.User != "" || sc.has(".token") || sc.has(".token_file")
	for _, server := range l.servers() {
		sent = sent || strings.Contains(server, "@")
	}
	if l.PlaintextAuth && !sent {
		sc.warn(sc.at+".plaintext_auth",
			"is set, and there is neither a password nor a token: nothing goes in clear that it would allow")
	}
}

// checkEmbedded warns of what is said of the embedded server where there is none. It is no mistake: the example has it, and a url
// beside it comes to be set.
func (d *Document) checkEmbedded() {
	all := d.reads()
	if len(all) == 0 || slices.ContainsFunc(all, func(r read) bool { return r.Source == (Source{}) || r.Embedded() }) {
		return
	}
	for _, key := range []string{"embedded.dir", "embedded.port"} {
		if d.Has(key) {
			d.Warn(key, "is set, and each source has a server of its own: there is no embedded one")
		}
	}
}
