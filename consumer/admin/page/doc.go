// Package page is the web page of the admin server: what consumers are doing, why their pools have the size that they have, what
// is stuck, waits or fails, and their dead letters. With the token it pauses, resumes, changes limits, and replays, edits and
// purges letters.
//
//	ui := page.New(page.Config{})
//	c, err := consumer.New(consumer.Config{Observers: []consumer.Observer{ui.Watch("orders", page.Sources{})}, …})
//	server, err := admin.New(admin.Config{Targets: map[string]admin.Target{"orders": c}, Token: token, Page: ui})
//	err = server.Run(ctx) // http://127.0.0.1:8080/ui/
//
// All is rendered here, by html/template; forms work without JavaScript. The one script fetches the parts that change once a
// second while somebody looks, and puts in what is new. Nothing comes from elsewhere, and histories are in memory: they begin
// with the process.
//
// # Where things are
//
//	page.go       a Page: what it is made of
//	routes.go     what is answered, and by which part; guard.go: what stands before all of it
//	door.go       lets those in who have logged in; session.go: who has
//	changes.go    who changed what
//	watched.go    one consumer; history.go: what its figures were; diary.go: its decisions and failures
//	eventlog.go   the latest events of all; ring.go: the latest of anything; lags.go: what the broker says
//	glance.go     is it keeping up, and why so many workers, in a sentence
//	overview.go   all consumers; detail.go: one; charts.go: its pictures (internal/chart draws them)
//	control.go    pause, resume, limits
//	letters.go    lists dead letters; letter.go: one of them, and its edit; choice.go: which ones are meant
//	plan.go       what a replay or a purge would do; job.go: does it
//	render.go     templates, and the frame around each page; plain.go: texts of others, fit to be shown
package page
