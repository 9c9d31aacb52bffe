// Package middleware has what wraps a handler: one file each. The first in consumer.Chain is the outermost.
//
//	consumer.Chain(
//		middleware.Logging(log, zerolog.DebugLevel), // sees what all others made of it
//		dedup,                                       // a repeat costs neither a token nor a call
//		limit.Middleware,                            // waits before the timeout begins
//		breaker.Middleware,                          // waits too; a timeout inside counts as a failure
//		middleware.Timeout(5*time.Second),
//		middleware.Recover(),                        // a panic is an error to all of them
//	)(handler)
//
// Retries and dead letters are not here: the engine decides about them after the outermost middleware has returned, so their
// place in a chain cannot be wrong.
package middleware
