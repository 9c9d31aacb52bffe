package config

import "github.com/longshoremq/longshore/broker/natsbroker"

// Adapter is the adapter's Config; embedded is the URL of the server inside the process, or empty where nothing connects.
func (n *NATSCore) Adapter(embedded string) natsbroker.CoreConfig {
	c := n.CoreConfig
	c.URLs = n.link().at(embedded)
	return c
}

// checkNATSCore: what the file says in its own way, and what core NATS cannot do. The rest is the adapter's to find.
func (sc sectionCheck) checkNATSCore(n *NATSCore) {
	if sc.has(".url") && n.URL == "" {
		sc.find(".url", "is empty; leave it out for the embedded server")
	}
	if sc.has(".url") && sc.has(".urls") {
		sc.find(".urls", "is set, and so is url: set one")
	}
	sc.checkLink(n.link())
	sc.FindConfig(sc.at, n, n.Adapter("").Validate())
}
