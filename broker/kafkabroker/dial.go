package kafkabroker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// connect makes a transport; it dials when it is used. topic is what the Transport looks at for its own layout.
func (c Connection) connect(topic string) (*cluster, error) {
	t, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	m, err := c.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	tr := &kafka.Transport{
		DialTimeout: c.DialTimeout, MetadataTTL: time.Second, MetadataTopics: []string{topic}, ClientID: c.ClientID, TLS: t, SASL: m, Dial: c.dial,
	}
	if tr.Dial == nil {
		tr.Dial = (&net.Dialer{Timeout: c.DialTimeout}).DialContext
	}
	return &cluster{
		transport: tr, addr: kafka.TCP(c.Brokers...), clientID: c.ClientID, timeout: c.RequestTimeout,
		versions: make(map[int32]map[int16][2]int16),
	}, nil
}

// probe connects to one of the brokers and logs in. The Transport does not tell why it has no connection; this does.
func (c Connection) probe(ctx context.Context, t *kafka.Transport) (err error) {
	d := kafka.Dialer{ClientID: c.ClientID, Timeout: c.DialTimeout, DialFunc: t.Dial, TLS: t.TLS, SASLMechanism: t.SASL}
	for _, b := range c.Brokers {
		conn, e := d.DialContext(ctx, "tcp", b)
		if e == nil {
			return conn.Close()
		}
		err = errors.Join(err, fmt.Errorf("broker %s: %w", b, e))
	}
	return err
}

func (c Connection) tlsConfig() (*tls.Config, error) {
	t := c.TLS
	if !t.wanted() {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("kafkabroker: TLS.CAFile: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafkabroker: TLS.CAFile %s has no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
			return nil, fmt.Errorf("kafkabroker: TLS.CertFile %s with TLS.KeyFile %s: %w", t.CertFile, t.KeyFile, err)
		}
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			return &cert, err
		}
	}
	return conf, nil
}

func (s SASL) mechanism() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case "PLAIN":
		return plain.Mechanism{Username: s.User, Password: s.Password.Reveal()}, nil
	case "SCRAM-SHA-256":
		return s.scram(scram.SHA256)
	case "SCRAM-SHA-512":
		return s.scram(scram.SHA512)
	}
	return nil, nil
}

func (s SASL) scram(algo scram.Algorithm) (sasl.Mechanism, error) {
	m, err := scram.Mechanism(algo, s.User, s.Password.Reveal())
	if err != nil {
		return nil, fmt.Errorf("kafkabroker: SASL.User or SASL.Password cannot be used with %s", s.Mechanism)
	}
	return m, nil
}
