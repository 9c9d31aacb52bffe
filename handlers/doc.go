// Package handlers has what stands between the engine and the code that does the work: handlers by name, routing, decoding, and
// ready-made handlers.
//
//	Registry   a name and options make a handler, as in a configuration file
//	Router     a message finds its handler by topic or subject, by event type and by headers
//	Typed      a handler gets a value instead of bytes, which a Codec decodes: JSON, others by content type, your own
//	Log, Webhook, Exec, Publish   are ready-made, from Go or by name
//
// Each ends in a consumer.Handler, a plain function, so they nest: a route leads to any handler, and a Router is one too. Package
// handlers/middleware wraps them.
package handlers
