package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/longshoremq/longshore/consumer"
)

// ExecBatchFactory makes a batch handler that runs a command for each batch, with the options of exec: the command's standard
// input has a line for each payload, and LONGSHORE_BATCH is their number. JSON over several lines is written on one; another
// payload with a line break is dead-lettered, for the command could not tell where it ends.
//
// Its exit code decides about all messages. Where it is one of PermanentCodes, the command is run again on the halves, until the
// message that it means is alone.
func ExecBatchFactory(s *Setup, o Options) (consumer.BatchHandler, error) {
	e, err := execOf(s, o)
	if err != nil {
		return nil, err
	}
	return shipment{encode: line, send: func(ctx context.Context, ms []*consumer.Message, lines [][]byte) error {
		count := field{variable: envPrefix + "BATCH", value: strconv.Itoa(len(ms))}
		return e.call(ctx, append(bytes.Join(lines, []byte("\n")), '\n'), []field{count})
	}}.handle, nil
}

// line is a payload as one line.
func line(m *consumer.Message) ([]byte, error) {
	if !bytes.ContainsAny(m.Value, "\r\n") {
		return m.Value, nil
	}
	var one bytes.Buffer
	if json.Compact(&one, m.Value) != nil {
		return nil, consumer.Undecodable(errors.New("its payload has a line break and is no JSON: a command that is run on batches " +
			"gets a line for each message"))
	}
	return one.Bytes(), nil
}
