// Package handlers has what stands between the engine and the code that does the work: handlers by name, routing, decoding, and
// ready-made handlers.
//
//	Registry   a name and options make a handler, as in a configuration file
//	Router     a message finds its handler by topic or subject, by event type and by headers
//	Typed      a handler gets a value instead of bytes, which a Codec decodes: JSON, others by content type, your own
//	TypedBatch a batch handler gets values instead of bytes
//	Log, Webhook, Exec, Publish   are ready-made, from Go or by name
//
// Each ends in a consumer.Handler, a plain function, so they nest: a route leads to any handler, and a Router is one too. Package
// handlers/middleware wraps them.
//
// # Where things are
//
//	registry.go       handlers, batch handlers, middleware and codecs by name; beside.go: what runs beside them
//	options.go        what a file says to one; text.go: a value whose type the field decides
//	router.go         which handler a message goes to; pattern.go: by its topic or subject
//	typed.go          a value instead of bytes; typedbatch.go: those of a batch; codec.go: decodes it
//	log.go            log, also of batches
//	webhook.go        webhook; webhookconfig.go: its settings; answer.go: what an answer means; webhookbatch.go: of batches
//	exec.go           exec; execbatch.go: of batches; command.go: a command that runs, its process group (command_unix.go,
//	                  command_other.go), and that it ends with us (command_linux.go, command_notlinux.go)
//	publish.go        publish
//	batch.go          batch handlers by name, and what theirs have in common
//	origin.go         what webhook and exec tell about a message beside its payload
//	redact.go         secrets that come back in others' texts
package handlers
