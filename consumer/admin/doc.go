// Package admin serves a process's health, metrics and controls over HTTP, on loopback unless told otherwise.
//
//	GET  /                             what can be asked for, as text
//	GET  /livez                        200, or 503 with a line for each consumer that is unhealthy, and why
//	GET  /readyz                       200, or 503 with a line for each consumer that is not ready
//	GET  /metrics                      Prometheus
//	GET  /consumers                    all of them, as JSON
//	GET  /consumers/{name}             its state, limits, workers and lag, as JSON
//	GET  /consumers/{name}/messages    what is in handlers, and what waits for its next attempt; with the token their keys
//	POST /consumers/{name}/pause       stops taking messages; what was taken is handled
//	POST /consumers/{name}/resume
//	GET  /consumers/{name}/limits      of its workers and of its handlers, as JSON
//	POST /consumers/{name}/limits      {"min": 1, "max": 64}
//	POST /consumers/{name}/limits/{limit}   the settings of a limit of its handlers: {"per_second": 50}
//	     /ui/                          the web page, where there is one: package page
//
// The POSTs need "Authorization: Bearer <token>" and are refused altogether when no token is configured. There is no profiling,
// no CORS and nothing else to find; the server uses a mux of its own. On loopback the Host header must name loopback, so that no
// web page can reach it by a name that it rebinds.
package admin
