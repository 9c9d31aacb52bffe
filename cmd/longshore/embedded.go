package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// embeddedNATS is a nats-server with JetStream inside this process.
type embeddedNATS struct {
	server *server.Server
	url    string
}

// startNATS starts it on a free loopback port, with its file store in dir.
func startNATS(dir string) (*embeddedNATS, error) {
	s, err := server.NewServer(&server.Options{
		ServerName: "longshore-embedded", Host: "127.0.0.1", Port: server.RANDOM_PORT,
		JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return nil, fmt.Errorf("starting the embedded NATS server: %w", err)
	}
	go s.Start() // returns when it is ready; its own goroutines end at Shutdown
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		return nil, errors.New("starting the embedded NATS server: not ready within 10 s")
	}
	return &embeddedNATS{server: s, url: s.ClientURL()}, nil
}

func (e *embeddedNATS) stop() {
	e.server.Shutdown()
	e.server.WaitForShutdown()
}
