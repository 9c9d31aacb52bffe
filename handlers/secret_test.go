package handlers_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/consumer"
	"github.com/longshoremq/longshore/handlers"
	"github.com/rs/zerolog"
)

const canary = "canary-5f3a"

// outputs is v in every way that somebody may print it.
func outputs(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%c", "%U", "%b", "%o", "%e", "%p", "%w"} {
		fmt.Fprintf(&b, verb+"\n", v)
	}
	if j, err := json.Marshal(v); err == nil {
		b.Write(j)
	}
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "v", v)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "v", v)
	log := zerolog.New(&b)
	log.Info().Interface("v", v).Any("w", v).Msg(fmt.Sprint(v))
	return b.String()
}

// hidden wants no canary in text, in plain or in hexadecimal.
func hidden(t *testing.T, what, text string) {
	t.Helper()
	for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary)} {
		if strings.Contains(text, form) {
			t.Errorf("%s shows the secret: %.300s", what, text)
		}
	}
}

// A secret in every secret field is in no output, whatever holds it.
func TestSecretsAreNotShown(t *testing.T) {
	secret := broker.NewSecret(canary)
	type inside struct{ hidden broker.Secret }
	wc := handlers.WebhookConfig{URL: "https://example.com/", Headers: map[string]broker.Secret{"X-Api-Key": secret},
		BearerToken: secret}
	wb := handlers.WebhookConfig{URL: "https://example.com/", Basic: handlers.BasicAuth{User: "u", Password: secret}}
	ec := handlers.ExecConfig{Command: []string{"true"}, Env: map[string]broker.Secret{"TOKEN": secret}}
	w1, w2 := webhook(t, wc), webhook(t, wb)
	e, err := handlers.NewExec(ec)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{"secret": secret, "pointer": &secret, "unexported field": inside{secret},
		"webhook config": wc, "basic": wb,
		"exec config": ec, "webhook": w1, "webhook value": *w1, "basic webhook": w2, "exec": e, "exec value": *e,
		"list": []broker.Secret{secret}} {
		hidden(t, name, outputs(t, v))
	}
	if secret.Reveal() != canary || secret.String() != "***" || (broker.Secret{}).String() != "" {
		t.Error("Reveal or String")
	}
}

// Nor in the error of any wrong configuration, in whatever field it stands.
func TestSecretsAreNotInErrors(t *testing.T) {
	bad := canary + "\r\n"
	for name, values := range map[string]map[string]any{
		"bearer":      {"url": "https://h/", "bearer_token": bad},
		"header":      {"url": "https://h/", "headers": map[string]any{"X-Key": bad}},
		"basic":       {"url": "https://h/", "basic": map[string]any{"password": canary}},
		"userinfo":    {"url": "https://user:" + canary + "@h/"},
		"plain http":  {"url": "http://example.com/", "bearer_token": canary},
		"malformed":   {"url": "https://h:" + canary + "/%zz"},
		"bad scheme":  {"url": "ftp://" + canary},
		"wrong type":  {"url": "https://h/", "bearer_token": []any{canary}},
		"wrong type2": {"url": "https://h/", "timeout": canary},
		"two":         {"url": "https://h/", "bearer_token": canary, "basic": map[string]any{"user": "u", "password": canary}},
	} {
		_, err := handlers.Default().Build("webhook", nil, handlers.NewOptions(values))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		hidden(t, name, outputs(t, err)+err.Error())
	}
	_, err := handlers.Default().Build("exec", nil, handlers.NewOptions(map[string]any{"command": []any{"true"},
		"env": map[string]any{"A=B": canary, "OK": canary + "\x00"}}))
	if err == nil {
		t.Fatal("exec: accepted")
	}
	hidden(t, "exec", outputs(t, err))
}

// Nor in the errors of requests and commands, even when the other side says it back.
func TestSecretsAreNotInFailures(t *testing.T) {
	secret := broker.NewSecret(canary)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, r.Header.Get("Authorization"), r.Header.Get("X-Key"))
	})
	w := webhook(t, handlers.WebhookConfig{URL: s.URL, BearerToken: secret, Headers: map[string]broker.Secret{"X-Key": secret}})
	err := w.Handle(t.Context(), message("in", "x"))
	if err == nil {
		t.Fatal("no error")
	}
	hidden(t, "webhook's error", outputs(t, err))
	s.CloseClientConnections()
	s.Close()
	if err = w.Handle(t.Context(), message("in", "x")); err == nil {
		t.Fatal("no error")
	}
	hidden(t, "webhook's network error", outputs(t, err))

	e, err := handlers.NewExec(handlers.ExecConfig{Command: []string{"sh", "-c", `echo "token is $TOKEN" >&2; exit 1`},
		Env: map[string]broker.Secret{"TOKEN": secret}})
	if err != nil {
		t.Fatal(err)
	}
	if err = e.Handle(context.Background(), message("in", "x")); err == nil || !strings.Contains(err.Error(), "token is ***") {
		t.Fatalf("error %v", err)
	}
	hidden(t, "exec's error", outputs(t, err))
}

// Nor in the output of a command, however long it is, and wherever what is kept of it begins.
func TestSecretsAreNotInOutput(t *testing.T) {
	long := strings.Repeat("canary-long-", 1000)
	for name, c := range map[string]struct {
		env    map[string]string
		script string
	}{
		"longer than what is kept": {map[string]string{"A": long}, `printf %s "$A"`},
		"cut where what is kept begins": {map[string]string{"A": "canary-" + strings.Repeat("x", 300), "B": strings.Repeat("b", 100)},
			`printf %s "$A"; for i in $(seq 38); do printf %s "$B"; done`},
		"one begins as the other":        {map[string]string{"A": "tok", "B": "tok-canary", "C": "tok-can"}, `echo "$B"`},
		"a line's end that a shell cuts": {map[string]string{"A": "canary-x\n"}, `echo $A`},
		"several lines":                  {map[string]string{"A": "-----BEGIN-----\ncanary-x\ncanary-y\n"}, `echo $A`},
		"quoted":                         {map[string]string{"A": `canary "x" \`}, `echo "$A" | sed 's/[\"]/\\&/g'`},
	} {
		env := map[string]broker.Secret{}
		for k, v := range c.env {
			env[k] = broker.NewSecret(v)
		}
		for range 5 { // maps have no order
			e, err := handlers.NewExec(handlers.ExecConfig{Command: []string{"sh", "-c", c.script + "; exit 1"}, Env: env})
			if err != nil {
				t.Fatal(err)
			}
			err = e.Handle(t.Context(), message("in", "x"))
			if err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "xxxx") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Nor where a command or its library writes it in another way: in a URL, or between quotes.
func TestSecretsAreNotInOtherSpellings(t *testing.T) {
	const secret = `pw/=+&<(é😀)>"\` + "\t" + `'! 1%`
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	if err := e.Encode(secret); err != nil {
		t.Fatal(err)
	}
	html, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	for name, form := range map[string]string{
		"url.QueryEscape":    url.QueryEscape(secret),
		"url.PathEscape":     url.PathEscape(secret),
		"url.Values":         url.Values{"token": {secret}}.Encode(),
		"lower case":         `pw%2f%3d%2b%26%3c%28%c3%a9%f0%9f%98%80%29%3e%22%5c%09%27%21%201%25`,
		"encodeURIComponent": `pw%2F%3D%2B%26%3C(%C3%A9%F0%9F%98%80)%3E%22%5C%09'!%201%25`,
		"urllib quote":       `pw/%3D%2B%26%3C%28%C3%A9%F0%9F%98%80%29%3E%22%5C%09%27%21%201%25`,
		"JSON":               plain.String(),
		"JSON for HTML":      string(html),
		"json.dumps":         `"pw/=+&<(\u00e9\ud83d\ude00)>\"\\\t'! 1%"`,
		"json_encode":        `"pw\/=+&<(\u00e9\ud83d\ude00)>\"\\\t'! 1%"`,
		"Python":             `'pw/=+&<(é😀)>"\\\t\'! 1%'`,
		"strconv.Quote":      strconv.Quote(secret),
	} {
		e, err := handlers.NewExec(handlers.ExecConfig{Command: []string{"sh", "-c", "cat; exit 1"},
			Env: map[string]broker.Secret{"TOKEN": broker.NewSecret(secret)}})
		if err != nil {
			t.Fatal(err)
		}
		err = e.Handle(t.Context(), message("in", form))
		if err == nil || strings.Contains(err.Error(), "pw") || !strings.Contains(err.Error(), "***") {
			t.Errorf("%s: %s comes back as %v", name, form, err)
		}
	}
	e2, err := handlers.NewExec(handlers.ExecConfig{Command: []string{"sh", "-c", "cat; exit 1"},
		Env: map[string]broker.Secret{"TOKEN": broker.NewSecret(`pw "x" \`)}})
	if err != nil {
		t.Fatal(err)
	}
	if err = e2.Handle(t.Context(), message("in", `KeyError: 'pw "x" \\'`)); err == nil || strings.Contains(err.Error(), "pw") {
		t.Errorf("Python's repr: %v", err)
	}
}

// A value of three characters or less is a setting and no secret: with each 1 of an output gone nobody could read it.
func TestShortValuesStay(t *testing.T) {
	e, err := handlers.NewExec(handlers.ExecConfig{
		Command: []string{"sh", "-c", `echo "line 11 of 12 in eu, with $KEY"; exit 1`},
		Env: map[string]broker.Secret{"DEBUG": broker.NewSecret("1"), "REGION": broker.NewSecret("eu\n"),
			"KEY": broker.NewSecret("k-17")}})
	if err != nil {
		t.Fatal(err)
	}
	err = e.Handle(t.Context(), message("in", "x"))
	if err == nil || !strings.Contains(err.Error(), `"line 11 of 12 in eu, with ***"`) {
		t.Errorf("error %v", err)
	}
}

// Nor in what a server says back that speaks no HTTP.
func TestSecretsAreNotEchoed(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 %s %s\r\n\r\n", strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), r.Header.Get("X-Key"))
		conn.Close()
	})
	for _, secret := range []string{canary, `{"key":"` + canary + `\"}`} { // net/http quotes what it was told
		w := webhook(t, handlers.WebhookConfig{URL: s.URL, BearerToken: broker.NewSecret(secret),
			Headers: map[string]broker.Secret{"X-Key": broker.NewSecret(secret)}})
		err := w.Handle(t.Context(), message("in", "x"))
		if err == nil {
			t.Fatal("no error")
		}
		hidden(t, "webhook's error", outputs(t, err))
	}
}

// Nor a part of a request's secrets that comes back by itself: the token of a header, the password of a login, or what is secret
// in the URL. A word of the URL stays.
func TestSecretsAreNotEchoedInParts(t *testing.T) {
	basic := base64.StdEncoding.EncodeToString([]byte("user:" + canary))
	const path, query, word = "T0CANARY/xoxb-12canary34-7Q", "canary+0123456789/s", "order-notifications"
	for name, c := range map[string]struct {
		header, echo, left string
	}{
		"bearer":            {"Bearer " + canary, canary, "***"},
		"another scheme":    {"ApiKey " + canary, canary, "***"},
		"basic":             {"Basic " + basic, basic, "***"},
		"basic's password":  {"Basic " + basic, canary, "***"},
		"a part of the URL": {"", "xoxb-12canary34-7Q", "***"},
		"a query's value":   {"", query, "***"},
		"a word":            {"", word, word},
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", c.echo)
			conn.Close()
		})
		cfg := handlers.WebhookConfig{URL: s.URL + "/" + word + "/" + path + "?sig=" + url.QueryEscape(query)}
		if c.header != "" {
			cfg.Headers = map[string]broker.Secret{"authorization": broker.NewSecret(c.header)}
		}
		err := webhook(t, cfg).Handle(t.Context(), message("in", "x"))
		if err == nil || !strings.Contains(err.Error(), c.left) || strings.Contains(err.Error(), "canary") ||
			strings.Contains(err.Error(), basic) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A token that is replaced in its file is sent from then on, and hidden; where the file is away or of no use that attempt fails,
// to be retried. It was read once, and each message was refused until the program was started again.
func TestWebhookReadsItsTokenAgain(t *testing.T) {
	var sent, echo string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization") + r.Header.Get("X-Key")
		if echo == "" {
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", echo)
		conn.Close()
	})
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	secret, err := broker.SecretFile(file)
	if err != nil {
		t.Fatal(err)
	}
	setup := &handlers.Setup{}
	defer setup.Close()
	options := handlers.NewOptions(map[string]any{"url": s.URL, "bearer_token_file": file})
	named, err := handlers.Default().Build("webhook", setup, options)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		h      consumer.Handler
		prefix string
	}{
		"by name": {named, "Bearer "},
		"in Go":   {webhook(t, handlers.WebhookConfig{URL: s.URL, BearerToken: secret}).Handle, "Bearer "},
		"a header": {webhook(t, handlers.WebhookConfig{URL: s.URL,
			Headers: map[string]broker.Secret{"X-Key": secret}}).Handle, ""},
	} {
		for _, token := range []string{"first", "second", "third"} { // of one length, within one tick of a clock
			write(token + "\n")
			if err := c.h(t.Context(), message("in", "x")); err != nil || sent != c.prefix+token {
				t.Errorf("%s: sent %q, %v, want %q", name, sent, err, c.prefix+token)
			}
		}
		sent = ""
		for _, text := range []string{"", "two\nlines", "\x00"} {
			write(text)
			if err := c.h(t.Context(), message("in", "x")); err != nil || sent != c.prefix+"third" {
				t.Errorf("%s: with %q: sent %q, error %v", name, text, sent, err)
			}
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := c.h(t.Context(), message("in", "x")); err != nil || sent != c.prefix+"third" {
			t.Errorf("%s: without its file: sent %q, error %v", name, sent, err)
		}
		write(canary)
		echo = canary
		if err := c.h(t.Context(), message("in", "x")); err == nil || !strings.Contains(err.Error(), "***") {
			t.Errorf("%s: error %v", name, err)
		} else {
			hidden(t, name, err.Error())
		}
		echo = ""
	}
}

// What is wrong with a webhook's options is found before anything is dialled, each with its path.
func TestWebhookRefuses(t *testing.T) {
	secret := broker.NewSecret("x")
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(notPEM, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  handlers.WebhookConfig
		path string
	}{
		{handlers.WebhookConfig{}, "url"},
		{handlers.WebhookConfig{URL: "example.com"}, "url"},
		{handlers.WebhookConfig{URL: "ftp://example.com"}, "url"},
		{handlers.WebhookConfig{URL: "http://"}, "url"},
		{handlers.WebhookConfig{URL: "http://:80/"}, "url"},
		{handlers.WebhookConfig{URL: "http://h:0/"}, "url"},
		{handlers.WebhookConfig{URL: "http://h:99999/"}, "url"},
		{handlers.WebhookConfig{URL: "http://h:/"}, "url"},
		{handlers.WebhookConfig{URL: "http://h\r\nX: y/"}, "url"},
		{handlers.WebhookConfig{URL: "http://a b/"}, "url"},
		{handlers.WebhookConfig{URL: "https://h/#f"}, "url"},
		{handlers.WebhookConfig{URL: "https://u:p@h/"}, "url"},
		{handlers.WebhookConfig{URL: "http://10.0.0.1/", BearerToken: secret}, "url"},
		{handlers.WebhookConfig{URL: "https://h/", BearerTokenFile: "/does/not/exist"}, "bearer_token_file"},
		{handlers.WebhookConfig{URL: "https://h/", BearerTokenFile: notPEM, BearerToken: secret}, "bearer_token_file"},
		{handlers.WebhookConfig{URL: "https://h/", BearerTokenFile: notPEM, Basic: handlers.BasicAuth{User: "u"}}, "bearer_token"},
		{handlers.WebhookConfig{URL: "http://10.0.0.1/", BearerTokenFile: notPEM}, "url"},
		{handlers.WebhookConfig{URL: "https://h/", CAFile: "/does/not/exist.pem"}, "ca_file"},
		{handlers.WebhookConfig{URL: "https://h/", CAFile: notPEM}, "ca_file"},
		{handlers.WebhookConfig{URL: "https://h/", Headers: map[string]broker.Secret{"Host": secret}}, "headers.Host"},
		{handlers.WebhookConfig{URL: "https://h/", Headers: map[string]broker.Secret{"content-length": secret}},
			"headers.content-length"},
		{handlers.WebhookConfig{URL: "https://h/", Headers: map[string]broker.Secret{"longshore-key": secret}},
			"headers.longshore-key"},
		{handlers.WebhookConfig{URL: "https://h/", Headers: map[string]broker.Secret{"X": {}}}, "headers.X"},
		{handlers.WebhookConfig{URL: "https://h/", ForwardHeaders: []string{"authorization"}}, "forward_headers[0]"},
		{handlers.WebhookConfig{URL: "https://h/", ForwardHeaders: []string{"ok", "bad name"}}, "forward_headers[1]"},
		{handlers.WebhookConfig{URL: "https://h/", BearerToken: secret, Headers: map[string]broker.Secret{"authorization": secret}},
			"bearer_token"},
		{handlers.WebhookConfig{URL: "https://h/", Headers: map[string]broker.Secret{"X-Team": secret, "x-team": secret}},
			"headers.x-team"}, // or chance decides which one is sent
		{handlers.WebhookConfig{URL: "https://h/", Timeout: -1}, "timeout"},
		{handlers.WebhookConfig{URL: "https://h/", MaxRetryAfter: -1}, "max_retry_after"},
		{handlers.WebhookConfig{URL: "https://h/", MaxIdleConnections: -1}, "max_idle_connections"},
		{handlers.WebhookConfig{URL: "https://h/", ContentType: "a\r\nb"}, "content_type"},
	} {
		_, err := handlers.NewWebhook(c.cfg)
		var all handlers.OptionErrors
		if !errors.As(err, &all) || len(all) != 1 || all[0].Path != c.path {
			t.Errorf("%+v: error %v, want one at %s", c.cfg, err, c.path)
		}
	}
	huge := filepath.Join(t.TempDir(), "huge")
	if err := errors.Join(os.WriteFile(huge, nil, 0o600), os.Truncate(huge, 5<<20)); err != nil {
		t.Fatal(err)
	}
	_, err := handlers.NewWebhook(handlers.WebhookConfig{URL: "https://h/", CAFile: huge})
	if err == nil || !strings.Contains(err.Error(), "ca_file: reading certificates: "+huge+" has more than") {
		t.Errorf("a large ca_file: %v", err)
	}
	for _, ok := range []handlers.WebhookConfig{{URL: "http://127.0.0.1:80/", BearerToken: secret},
		{URL: "http://[::1]:80/", BearerToken: secret},
		{URL: "http://10.0.0.1/", BearerToken: secret, AllowInsecureAuth: true}, {URL: "HTTPS://h/"}} {
		if _, err := handlers.NewWebhook(ok); err != nil {
			t.Errorf("%+v: %v", ok, err)
		}
	}
}

// A login that is written and empty, as where a variable is, would send requests without one: each would be answered with 401,
// and its message given up at once.
func TestWebhookRefusesEmptyLogins(t *testing.T) {
	for want, o := range map[string]map[string]any{
		"bearer_token: is empty":      {"bearer_token": ""},
		"bearer_token_file: is empty": {"bearer_token_file": ""},
		"ca_file: is empty":           {"ca_file": handlers.Text("")},
		"basic.user: is required":     {"basic": map[string]any{"user": handlers.Text(""), "password": handlers.Text("")}},
		"basic.user: is required ":    {"basic": map[string]any{}},
		"basic: wants a mapping, is":  {"basic": ""},
	} {
		o["url"] = "https://h/"
		_, err := handlers.Default().Build("webhook", nil, handlers.NewOptions(o))
		var all handlers.OptionErrors
		if !errors.As(err, &all) || len(all) != 1 || !strings.HasPrefix(all[0].Error(), strings.TrimSpace(want)) {
			t.Errorf("%v: error %v, want one, %s", o, err, want)
		}
	}
	// Who has only a key sends it as the user, and no password.
	key := map[string]any{"url": "https://h/", "basic": map[string]any{"user": "key", "password": ""}}
	if _, err := handlers.Default().Build("webhook", nil, handlers.NewOptions(key)); err != nil {
		t.Error(err)
	}
}
