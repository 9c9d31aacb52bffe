package consumer

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/letterheader"
)

// styles write the headers of each HeaderStyle for x, whose consumer has that name.
var styles = map[HeaderStyle]func(x letter, name string) []broker.Header{
	SpringHeaders:  springHeaders,
	ConnectHeaders: connectHeaders,
}

// foreign says whether a message's own header would stand where one of a style goes: it was a dead letter there before.
func foreign(styles []HeaderStyle, key string) bool {
	for _, s := range styles {
		if strings.HasPrefix(key, stylePrefixes[s]) {
			return true
		}
	}
	return false
}

var stylePrefixes = map[HeaderStyle]string{SpringHeaders: letterheader.SpringPrefix, ConnectHeaders: letterheader.ConnectPrefix}

// springHeaders are those of Spring for Apache Kafka's DeadLetterPublishingRecoverer: numbers in big-endian binary, texts in
// UTF-8. Source: spring-kafka's KafkaHeaders, the names that begin with kafka_dlt-.
func springHeaders(x letter, _ string) []broker.Header {
	m, prefix := x.failed.Message, stylePrefixes[SpringHeaders]
	hs := []broker.Header{
		header(prefix+"original-topic", m.Topic),
		{Key: prefix + "original-timestamp", Value: binary.BigEndian.AppendUint64(nil, uint64(m.Time().UnixMilli()))},
		header(prefix+"original-timestamp-type", "CreateTime"),
		header(prefix+"exception-fqcn", exceptionName(x)),
		header(prefix+"exception-message", x.errorText()),
	}
	if m.Partition >= 0 {
		hs = append(hs, broker.Header{Key: prefix + "original-partition",
			Value: binary.BigEndian.AppendUint32(nil, uint32(m.Partition))})
	}
	if m.Offset >= 0 { // one that is not there would be read as the last of all
		hs = append(hs, broker.Header{Key: prefix + "original-offset", Value: binary.BigEndian.AppendUint64(nil, uint64(m.Offset))})
	}
	return append(hs, stackHeader(prefix+"exception-stacktrace", x)...)
}

// connectHeaders are those that Kafka Connect writes with errors.deadletterqueue.context.headers.enable: texts all. Source:
// KIP-298.
func connectHeaders(x letter, name string) []broker.Header {
	m, prefix := x.failed.Message, stylePrefixes[ConnectHeaders]
	hs := []broker.Header{
		header(prefix+"topic", m.Topic),
		header(prefix+"connector.name", name),
		header(prefix+"exception.class.name", exceptionName(x)),
		header(prefix+"exception.message", x.errorText()),
	}
	if m.Partition >= 0 {
		hs = append(hs, header(prefix+"partition", strconv.Itoa(int(m.Partition))))
	}
	if m.Offset >= 0 {
		hs = append(hs, header(prefix+"offset", strconv.FormatInt(m.Offset, 10)))
	}
	return append(hs, stackHeader(prefix+"exception.stacktrace", x)...)
}

// exceptionName stands where the other systems have a Java class.
func exceptionName(x letter) string { return "longshore." + x.failed.Class }

// maxStackBytes of a stack go into a header.
const maxStackBytes = 4 << 10

func stackHeader(key string, x letter) []broker.Header {
	p, ok := panicOf(x.failed.Err)
	if !ok || x.cut {
		return nil
	}
	return []broker.Header{{Key: key, Value: p.Stack[:min(len(p.Stack), maxStackBytes)]}}
}
