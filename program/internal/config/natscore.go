package config

import "github.com/longshoremq/longshore/broker/natsbroker"

// Adapter is the adapter's Config; embedded is the URL of the server inside the process, or empty where nothing connects.
func (n *NATSCore) Adapter(embedded string) natsbroker.CoreConfig {
	c := n.CoreConfig
	c.URLs = n.link().at(embedded)
	return c
}

// checkNATSCore: what the file says in its own way, and what core NATS cannot do. The rest is the adapter's to find.
func (d *Document) checkNATSCore(at string, n *NATSCore) {
	if d.Has(at+".url") && n.URL == "" {
		d.Find(at+".url", "is empty; leave it out for the embedded server")
	}
	if d.Has(at+".url") && d.Has(at+".urls") {
		d.Find(at+".urls", "is set, and so is url: set one")
	}
	d.checkSubjects(at, n.Subjects)
	d.checkLink(at, n.link())
	d.FindConfig(at, n, n.Adapter("").Validate())
}
