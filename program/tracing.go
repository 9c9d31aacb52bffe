package program

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/longshoremq/longshore/consumer/tracing"
	"github.com/longshoremq/longshore/internal/plaintext"
	"github.com/longshoremq/longshore/program/internal/config"
)

// exporting says where spans and metrics go, and of which messages there are spans: as the file says, and where it says
// nothing, as the variables of OpenTelemetry say. The zero value: nowhere.
type exporting struct {
	spans, metrics bool
	// endpoint and headers are the file's; without an endpoint the exporter reads the variables itself.
	endpoint string
	headers  map[string]string
	resource map[string]string
	sampling
	relation tracing.Relation
	keys     bool
}

// sampling is which messages there are spans of.
type sampling struct {
	sample         float64 // negative: none
	ignoreProducer bool
}

// lookup reads a variable of the environment.
type lookup func(name string) (value string, ok bool)

// value is that of a variable; an empty one is not set, as OpenTelemetry has it.
func (env lookup) value(name string) string {
	v, _ := env(name)
	return strings.TrimSpace(v)
}

// exportingOf decides. What is wrong is found at its key, or at tracing where it is a variable's.
func exportingOf(doc *config.Document, env lookup) (x exporting) {
	file := doc.File.Tracing
	if file == nil {
		file = &config.Tracing{}
	}
	if strings.EqualFold(env.value("OTEL_SDK_DISABLED"), "true") {
		return exporting{}
	}
	endpoint := func(signal string) string {
		return cmp.Or(file.Endpoint, env.value("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT"), env.value("OTEL_EXPORTER_OTLP_ENDPOINT"))
	}
	x = exporting{
		endpoint: file.Endpoint, headers: map[string]string{}, resource: file.Resource,
		relation: tracing.Relation(file.Relation), keys: file.Keys,
	}
	for k, v := range file.Headers {
		x.headers[k] = v.Reveal()
	}
	x.spans = endpoint("TRACES") != "" && (file.Endpoint != "" || env.value("OTEL_TRACES_EXPORTER") != "none")
	x.metrics = doc.File.Metrics.OTLP
	if x.metrics && endpoint("METRICS") == "" {
		doc.Find("metrics.otlp", "is true, and there is no endpoint: set tracing.endpoint, or OTEL_EXPORTER_OTLP_ENDPOINT")
		x.metrics = false
	}
	ofSpans := !x.metrics || slices.ContainsFunc([]string{"sample", "relation", "keys"}, // resource and plaintext_auth are of both
		func(key string) bool { return doc.Has("tracing." + key) })
	if doc.File.Tracing != nil && endpoint("TRACES") == "" && ofSpans {
		doc.Find("tracing.endpoint", "is missing, and so is OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	checkEndpoint(doc, file)
	for k, v := range file.Headers {
		if !isToken(k) || strings.ContainsAny(v.Reveal(), "\r\n\x00") {
			doc.Find("tracing.headers",
				"has a header that cannot be sent: a name is one word of ASCII, and a value has no line breaks or zero bytes")
		}
	}
	if (x.spans || x.metrics) && file.Endpoint == "" {
		if err := x.checkVariables(env, file.PlaintextAuth); err != nil {
			doc.Find("tracing", "%v; or set tracing.endpoint, or OTEL_SDK_DISABLED to true to send nothing", err)
		}
	}
	switch s, err := samplerOf(env.value("OTEL_TRACES_SAMPLER"), env.value("OTEL_TRACES_SAMPLER_ARG")); {
	case doc.Has("tracing.sample"):
		x.sampling = share(file.Sample)
	case !x.spans: // whoever set the variable means other programs, too
	case err != nil:
		doc.Find("tracing", "%v", err)
	default:
		x.sampling = s
	}
	return x
}

// checkVariables: what is sent can be sent to where the variables say, and as they say. With a bad one the exporter takes this
// host, or fails at each export.
func (x *exporting) checkVariables(env lookup, allowed bool) error {
	var errs []error
	for _, signal := range []struct {
		name string
		sent bool
	}{{"TRACES", x.spans}, {"METRICS", x.metrics}} {
		if !signal.sent {
			continue
		}
		for _, err := range []error{checkProtocol(env, signal.name), checkVariable(env, signal.name),
			checkClear(env, signal.name, allowed), checkHeaders(env, "OTEL_EXPORTER_OTLP_HEADERS"),
			checkHeaders(env, "OTEL_EXPORTER_OTLP_"+signal.name+"_HEADERS")} {
			same := func(e error) bool { return e.Error() == err.Error() } // a variable that is of both
			if err != nil && !slices.ContainsFunc(errs, same) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// variable is the name of what is set of a signal's, or of all signals'; of the latter where neither is.
func (env lookup) variable(signal, what string) string {
	if name := "OTEL_EXPORTER_OTLP_" + signal + "_" + what; env.value(name) != "" {
		return name
	}
	return "OTEL_EXPORTER_OTLP_" + what
}

// checkVariable: a signal can be sent to its endpoint, which may have a secret in it and is not shown.
func checkVariable(env lookup, signal string) error {
	name := env.variable(signal, "ENDPOINT")
	if u, err := url.Parse(env.value(name)); !isCollector(u, err) {
		return fmt.Errorf("%s is not a URL of OTLP over HTTP, as http://127.0.0.1:4318", name)
	}
	return nil
}

// checkClear: headers, most of them tokens, do not leave this machine in clear, but where the file says so.
func checkClear(env lookup, signal string, allowed bool) error {
	to, headers := env.variable(signal, "ENDPOINT"), env.variable(signal, "HEADERS")
	u, err := url.Parse(env.value(to))
	if allowed || !isCollector(u, err) || env.value(headers) == "" || !env.plain(signal, u) || !plaintext.Exposed(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("%s would go to %s without TLS; use https:// or set tracing.plaintext_auth", headers, to)
}

// plain says whether a signal is sent without TLS: two variables have more to say than the endpoint's scheme.
func (env lookup) plain(signal string, u *url.URL) bool {
	if insecure := env.value(env.variable(signal, "INSECURE")); insecure != "" {
		return strings.EqualFold(insecure, "true")
	}
	return u.Scheme == "http"
}

// checkHeaders: the exporter leaves out what it cannot read, and prints it, a secret or not.
func checkHeaders(env lookup, name string) error {
	for _, one := range strings.Split(env.value(name), ",") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		key, text, ok := strings.Cut(one, "=")
		value, err := url.PathUnescape(text)
		if !ok || err != nil || !isToken(strings.TrimSpace(key)) || strings.ContainsAny(strings.TrimSpace(value), "\r\n\x00") {
			return fmt.Errorf("%s has a header that cannot be sent: want name=value, with commas between them, and in a value %%25 "+
				"for %%", name)
		}
	}
	return nil
}

func isCollector(u *url.URL, err error) bool {
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// checkEndpoint: spans can be sent there, and headers of the file go there, and nowhere else. It may have a secret in it, so it
// is not shown.
func checkEndpoint(doc *config.Document, file *config.Tracing) {
	if file.Endpoint == "" {
		if len(file.Headers) > 0 {
			doc.Find("tracing.headers", "go to tracing.endpoint only, which is missing: set it, or OTEL_EXPORTER_OTLP_HEADERS for "+
				"the endpoint of the environment")
		}
		return
	}
	switch u, err := url.Parse(file.Endpoint); {
	case !isCollector(u, err):
		doc.Find("tracing.endpoint", "is not a URL of OTLP over HTTP, as http://127.0.0.1:4318")
	case u.User != nil:
		doc.Find("tracing.endpoint", "has a login: write it into tracing.headers")
	case u.RawQuery != "" || u.Fragment != "":
		doc.Find("tracing.endpoint", "has a query or a fragment, and /v1/traces is added behind it: write a key into tracing.headers")
	case u.Scheme == "http" && len(file.Headers) > 0 && !file.PlaintextAuth && plaintext.Exposed(u.Hostname()):
		doc.Find("tracing.endpoint", "is plain http, and headers would go there without TLS; use https:// or set plaintext_auth")
	}
}

// isToken says whether a header can have this name (RFC 9110, 5.6.2).
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
	})
}

// checkProtocol: there is OTLP over HTTP only.
func checkProtocol(env lookup, signal string) error {
	name := env.variable(signal, "PROTOCOL")
	switch p := env.value(name); p {
	case "", "http/protobuf", "http/json":
		return nil
	default:
		return fmt.Errorf("%s is %q, want http/protobuf: set it so, with the collector's port for HTTP (4318)", name, p)
	}
}

func share(ratio float64) sampling {
	if ratio == 0 {
		ratio = -1 // package tracing's word for none
	}
	return sampling{sample: ratio}
}

// errSampler says that OTEL_TRACES_SAMPLER cannot be followed.
var errSampler = errors.New("OTEL_TRACES_SAMPLER")

// samplerOf is what OTEL_TRACES_SAMPLER and its argument say; without them, package tracing's default.
func samplerOf(name, arg string) (s sampling, err error) {
	ratio := 1.0
	if strings.HasSuffix(name, "traceidratio") && arg != "" {
		if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return s, fmt.Errorf("%w_ARG is %q, want a number from 0 to 1", errSampler, arg)
		}
	}
	switch name {
	case "":
		return sampling{}, nil
	case "always_on", "traceidratio":
		s = share(ratio)
		s.ignoreProducer = true
	case "always_off":
		s = share(0)
		s.ignoreProducer = true
	case "parentbased_always_on", "parentbased_traceidratio":
		s = share(ratio)
	case "parentbased_always_off":
		s = share(0)
	default:
		return s, fmt.Errorf("%w is %q, want one of always_on, always_off, traceidratio, parentbased_always_on, "+
			"parentbased_always_off, "+
			"parentbased_traceidratio", errSampler, name)
	}
	return s, nil
}

// config is of the consumer's Tracing, but for what it is of.
func (x *exporting) config() tracing.Config {
	return tracing.Config{Sample: x.sample, IgnoreProducer: x.ignoreProducer, Relation: x.relation, Keys: x.keys}
}

// target is where a signal of the file's endpoint is sent: below it, as the variable has it.
func (x *exporting) target(signal string) string {
	return strings.TrimSuffix(x.endpoint, "/") + "/v1/" + signal
}
