package broker

import "errors"

var (
	// ErrLost says that a settle came too late: as far as the adapter knows, another process has the message or will have it.
	// It is expected (a rebalance, an expired lease), is counted, and frees the budget like any settle.
	ErrLost = errors.New("broker: claim lost")

	// ErrSettled says that at least one message was settled before. The call changed nothing for that message.
	ErrSettled = errors.New("broker: already settled")

	// ErrClosed is returned by Receive after Stop, and by Open and Publish after Close.
	ErrClosed = errors.New("broker: closed")

	// ErrRefused is wrapped by a Publish error when the broker will never store the message as it is: too large, not
	// authorized, no such stream. Do not repeat it unchanged.
	ErrRefused = errors.New("broker: refused for good")
)
