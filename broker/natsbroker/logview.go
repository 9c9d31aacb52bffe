package natsbroker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/internal/conftag"
	"github.com/longshoremq/longshore/internal/natssubject"
)

// LogViewConfig says which server to read.
type LogViewConfig struct {
	Connection

	// Domain is the JetStream domain, where it is not the connection's own. Defaults to none.
	Domain string
}

// A LogView reads what streams have of a subject, and deletes single messages, without a consumer: so it works beside any
// consumer, also on a work-queue stream. It asks the stream's leader for each message ($JS.API.STREAM.MSG.GET), never a replica,
// which may lag behind. Safe for concurrent use.
type LogView struct {
	cfg  Config
	link *link
	dial chan struct{} // holds one while somebody connects
}

// NewLogView checks cfg. It connects when it is first used.
func NewLogView(cfg LogViewConfig) (*LogView, error) {
	c := Config{Connection: cfg.Connection, Domain: cfg.Domain}.withDefaults()
	f := findings()
	conftag.Check(f, c)
	c.Connection.validate(f)
	validateDomain(f, c.Domain)
	if err := f.Err(); err != nil {
		return nil, err
	}
	none := hooks{lost: func(error) {}, back: func() {}, problem: func(*nats.Subscription, error) {}}
	return &LogView{cfg: c, link: newLink(c.Connection, none), dial: make(chan struct{}, 1)}, nil
}

// Close closes the connection.
func (v *LogView) Close() { v.link.close() }

func (v *LogView) api(ctx context.Context) (jetstream.JetStream, error) {
	if v.link.conn() == nil {
		if err := v.connect(ctx); err != nil {
			return nil, err
		}
	}
	return v.cfg.api(v.link.conn())
}

// connect opens the connection. One caller does it at a time: of two connections the first would be known to nobody, and would
// come back by itself for as long as the process lives.
func (v *LogView) connect(ctx context.Context) error {
	select {
	case v.dial <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("connecting to %s: %w", v.cfg.where(), context.Cause(ctx))
	}
	defer func() { <-v.dial }()
	if v.link.conn() != nil {
		return nil
	}
	return v.link.open(ctx)
}

// stream finds the stream that takes a subject; broker.ErrNoTopic: there is none.
func (v *LogView) stream(ctx context.Context, js jetstream.JetStream, subject string) (*jetstream.StreamInfo, error) {
	if err := publishable(subject); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name, err := js.StreamNameBySubject(ctx, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: no stream takes the subject", broker.ErrNoTopic)
	}
	if err != nil {
		return nil, fmt.Errorf("looking for its stream: %w", err)
	}
	st, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("looking for stream %s: %w", name, err)
	}
	return st.CachedInfo(), nil
}

// Subjects are those that a stream takes, as it is configured: none for a mirror. It tries to connect until ctx ends.
// broker.ErrNoTopic: there is no such stream.
func (v *LogView) Subjects(ctx context.Context, stream string) ([]string, error) {
	js, err := v.api(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	asked := time.Now()
	st, err := js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("natsbroker: %w: no stream %s", broker.ErrNoTopic, stream)
	}
	if err != nil {
		return nil, fmt.Errorf("natsbroker: looking for stream %s: %w", stream, v.link.why(err, asked))
	}
	return st.CachedInfo().Config.Subjects, nil
}

// Scan calls each for every message of a subject that was stored when Scan began, in the order of the stream, and returns the
// first error of each. It tries to connect until ctx ends. broker.ErrNoTopic where no stream takes the subject. What the stream
// stores under another subject it cannot find, and it says so at the end.
func (v *LogView) Scan(ctx context.Context, s broker.Scan, each func(*broker.Message) error) (broker.Scanned, error) {
	asked := time.Now()
	done, err := v.scan(ctx, s, each)
	if errors.Is(err, broker.ErrStopScan) {
		return done, nil
	}
	if err != nil {
		return done, fmt.Errorf("natsbroker: reading subject %s: %w", s.Topic, v.link.why(err, asked))
	}
	return done, nil
}

// logOf names the log of a stream: one that is made anew has another.
func logOf(info *jetstream.StreamInfo) string {
	return info.Config.Name + "/" + strconv.FormatInt(info.Created.UnixNano(), 36)
}

func (v *LogView) scan(ctx context.Context, s broker.Scan, each func(*broker.Message) error) (done broker.Scanned, err error) {
	js, err := v.api(ctx)
	if err != nil {
		return done, err
	}
	info, err := v.stream(ctx, js, s.Topic)
	if err != nil {
		return done, err
	}
	done.Log = logOf(info)
	at, last := max(uint64(max(0, s.Offset)), 1), info.State.LastSeq
	done.Whole = keepsAll(info) && info.State.FirstSeq <= at
	if !s.Since.IsZero() {
		if at, err = v.since(ctx, js, info, s.Since); err != nil {
			return done, err
		}
		done.Whole = keepsAll(info) && (info.State.FirstSeq <= 1 || at > info.State.FirstSeq)
	}
	ahead := lookahead{at: at, get: func(ctx context.Context, seq uint64) (*storedMsg, error) {
		return v.get(ctx, js, info.Config.Name, s.Topic, seq)
	}}
	err = ahead.each(ctx, last, func(m *storedMsg) error { return each(m.message()) })
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		err = nil
	}
	if err == nil && transforms(&info.Config, s.Topic) {
		err = fmt.Errorf("stream %s stores what is published to it under another subject (subject_transform), and cannot be searched "+
			"for it", info.Config.Name)
	}
	if err != nil {
		return done, err
	}
	return v.meanwhile(ctx, js, info, at, done)
}

// meanwhile says what a scan from a sequence on has read: messages may be removed while it is under way, and the stream be made
// anew, of which the new one is named.
func (v *LogView) meanwhile(ctx context.Context, js jetstream.JetStream, was *jetstream.StreamInfo, from uint64,
	done broker.Scanned) (broker.Scanned, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	st, err := js.Stream(ctx, was.Config.Name)
	if err != nil {
		return done, fmt.Errorf("looking for stream %s: %w", was.Config.Name, err)
	}
	now := st.CachedInfo()
	done.Whole = done.Whole && keepsAll(now) && now.State.FirstSeq <= from && logOf(now) == done.Log
	done.Log = logOf(now)
	return done, nil
}

// transforms says whether a stream stores what is published to a subject under another one.
func transforms(c *jetstream.StreamConfig, subject string) bool {
	t := c.SubjectTransform
	return t != nil && t.Source != t.Destination && natssubject.Matches(cmp.Or(t.Source, ">"), subject)
}

// keepsAll says whether messages leave a stream only at its beginning, and are stored under the subjects that they are published
// to, as far as its configuration tells.
func keepsAll(info *jetstream.StreamInfo) bool {
	c := &info.Config
	return c.Retention == jetstream.LimitsPolicy && c.MaxMsgsPerSubject <= 0 && c.SubjectTransform == nil &&
		info.State.NumDeleted == 0
}

// since is the first sequence stored at or after t, found by halving: stored times rise with the sequence.
func (v *LogView) since(ctx context.Context, js jetstream.JetStream, info *jetstream.StreamInfo, t time.Time) (uint64, error) {
	from, to := max(info.State.FirstSeq, 1), info.State.LastSeq+1
	for from < to {
		m, err := v.get(ctx, js, info.Config.Name, ">", from+(to-from)/2)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			to = from + (to-from)/2
		case err != nil:
			return 0, err
		case m.Time.Before(t):
			from = m.Seq + 1
		default:
			to = from + (to-from)/2
		}
	}
	return from, nil
}

// A storedMsg is a message as the server stores it.
type storedMsg struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

func (s *storedMsg) message() *broker.Message {
	m := &broker.Message{
		Topic: s.Subject, Partition: -1, Offset: int64(s.Seq), Value: s.Data, Nanos: s.Time.UnixNano(), Attempt: 1,
	}
	if hs := storedHeaders(s.Header); len(hs) > 0 {
		h := nats.Header{}
		for _, x := range hs {
			h[x.Key] = append(h[x.Key], string(x.Value))
		}
		m.Headers, m.Key = broker.NewHeaders(hs...), keyOf(h)
	}
	return m
}

// storedHeaders reads a header block in its order, which nats.go's map does not keep. Lines that are none are left out: they come
// from whoever may publish.
func storedHeaders(raw []byte) (hs []broker.Header) {
	_, rest, _ := bytes.Cut(raw, []byte("\r\n")) // the first line is the version
	for line := range bytes.SplitSeq(rest, []byte("\r\n")) {
		if k, v, ok := bytes.Cut(line, []byte(":")); ok && validHeaderKey(string(k)) {
			hs = append(hs, broker.Header{Key: string(k), Value: bytes.Trim(v, " \t")})
		}
	}
	return hs
}

func (v *LogView) get(ctx context.Context, js jetstream.JetStream, stream, subject string, seq uint64) (*storedMsg, error) {
	return v.cfg.stored(ctx, js.Conn(), stream, subject, seq)
}

// stored asks for the first message of a subject at or after a sequence. It does not use the client's GetMsg: that one asks any
// replica where the stream allows it, and takes an empty message with a header Status for the server's own answer.
func (c Config) stored(ctx context.Context, nc *nats.Conn, stream, subject string, seq uint64) (*storedMsg, error) {
	body, err := json.Marshal(struct {
		Seq  uint64 `json:"seq"`
		Next string `json:"next_by_subj"`
	}{seq, subject})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := nc.RequestWithContext(ctx, c.apiPrefix()+"STREAM.MSG.GET."+stream, body)
	if err != nil {
		return nil, fmt.Errorf("asking for message %d: %w", seq, err)
	}
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message *storedMsg          `json:"message"`
	}
	switch err := json.Unmarshal(answer.Data, &got); {
	case err != nil:
		return nil, fmt.Errorf("asking for message %d: the answer cannot be read: %w", seq, err)
	case got.Error != nil && got.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, jetstream.ErrMsgNotFound
	case got.Error != nil:
		return nil, fmt.Errorf("asking for message %d: %w", seq, got.Error)
	case got.Message == nil:
		return nil, fmt.Errorf("asking for message %d: the answer has none", seq)
	}
	return got.Message, nil
}

// apiPrefix is where the server takes requests.
func (c Config) apiPrefix() string {
	if c.Domain != "" {
		return "$JS." + c.Domain + ".API."
	}
	return "$JS.API."
}

// CreateLog makes a stream for a subject that keeps its messages for ever, with as many replicas and the storage of the stream
// that takes the subject like. nil where a stream takes the subject already.
func (v *LogView) CreateLog(ctx context.Context, subject, like string) error {
	asked := time.Now()
	err := v.createLog(ctx, subject, like)
	if err != nil {
		return fmt.Errorf("natsbroker: creating a stream for %s: %w", subject, v.link.why(err, asked))
	}
	return nil
}

func (v *LogView) createLog(ctx context.Context, subject, like string) error {
	js, err := v.api(ctx)
	if err != nil {
		return err
	}
	if _, err := v.stream(ctx, js, subject); !errors.Is(err, broker.ErrNoTopic) {
		return err
	}
	model, err := v.stream(ctx, js, like)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: logName(subject), Subjects: []string{subject}, Storage: model.Config.Storage, Replicas: model.Config.Replicas,
	})
	return err
}

// Remove deletes single messages of a subject's stream by their sequences. It cannot be undone. What is gone already is no error.
func (v *LogView) Remove(ctx context.Context, subject string, places []broker.Place) error {
	asked := time.Now()
	return v.link.why(v.remove(ctx, subject, places), asked)
}

func (v *LogView) remove(ctx context.Context, subject string, places []broker.Place) error {
	js, err := v.api(ctx)
	if err != nil {
		return fmt.Errorf("natsbroker: deleting of %s: %w", subject, err)
	}
	info, err := v.stream(ctx, js, subject)
	if err != nil {
		return fmt.Errorf("natsbroker: deleting of %s: %w", subject, err)
	}
	st, err := js.Stream(ctx, info.Config.Name)
	if err != nil {
		return fmt.Errorf("natsbroker: deleting of %s: %w", subject, err)
	}
	for _, p := range places {
		one, cancel := context.WithTimeout(ctx, requestTimeout)
		err := st.DeleteMsg(one, uint64(p.Offset))
		cancel()
		if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) { // the code is not in the error: look whether it is there at all
			m, gerr := v.get(ctx, js, info.Config.Name, ">", uint64(p.Offset))
			if errors.Is(gerr, jetstream.ErrMsgNotFound) || gerr == nil && m.Seq > uint64(p.Offset) {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("natsbroker: deleting message %d of stream %s: %w", p.Offset, info.Config.Name, err)
		}
	}
	return nil
}
