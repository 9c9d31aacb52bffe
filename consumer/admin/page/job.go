package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/deadletters"
	"github.com/longshoremq/longshore/internal/panicked"
)

// A jobSpec is what a job is to do.
type jobSpec struct {
	order
	consumer string
	box      Letters
	edit     *edit
	// before were replayed by the job that this one goes on with.
	before int64
}

// How a job is.
const (
	jobRunning = "under way"
	jobStopped = "stopped"
	jobDone    = "done"
	jobFailed  = "failed"
)

// jobs are what is being done to dead letters: one job for each consumer at a time. The last one of each is kept, to be shown.
// Safe for concurrent use.
type jobs struct {
	mu      sync.Mutex
	by      map[string]*job
	running sync.WaitGroup
	closed  bool
}

// A job is one replay, purge or edit. Its fields but spec are under jobs.mu.
type job struct {
	spec     jobSpec
	state    string
	done, of int64
	began    time.Time
	ended    time.Time
	result   []string
	err      error
	replayed int64 // together with those before
	stop     context.CancelFunc
}

func newJobs() *jobs { return &jobs{by: map[string]*job{}} }

var (
	errJob    = errors.New("a job is under way for this consumer: wait for its end, or stop it")
	errClosed = errors.New("the process is about to end")
	errGoexit = errors.New("it called runtime.Goexit")

	errUnpublished = errors.New("the edited copy was not published; the letter is as it was")
)

// start begins a job. It does not wait.
func (j *jobs) start(spec jobSpec) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return errClosed
	}
	if one := j.by[spec.consumer]; one != nil && one.state == jobRunning {
		return errJob
	}
	ctx, stop := context.WithCancel(context.Background())
	one := &job{spec: spec, state: jobRunning, began: time.Now(), stop: stop, done: spec.before, of: spec.before + spec.number}
	j.by[spec.consumer] = one
	j.running.Go(func() {
		defer stop()
		how := outcome{err: errGoexit}
		defer func() {
			if v := recover(); v != nil { // a store or a publisher of somebody's own
				how = outcome{err: fmt.Errorf("it panicked: %v, at %s", v, panicked.At("/page.(*jobs).start"))}
			}
			j.end(one, how)
		}()
		how = one.run(ctx, func(done, of int64) { j.progress(one, done, of) })
	})
	return nil
}

func (j *jobs) progress(one *job, done, of int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one.done, one.of = one.spec.before+done, one.spec.before+of
}

// end writes down how a job ended.
func (j *jobs) end(one *job, how outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one.ended, one.result, one.err, one.replayed = time.Now(), how.lines, how.err, one.spec.before+how.replayed
	switch {
	case how.err != nil:
		one.state = jobFailed
	case how.stopped:
		one.state = jobStopped
	default:
		one.state = jobDone
	}
}

// halt asks a consumer's job to stop. It does not wait.
func (j *jobs) halt(consumer string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if one := j.by[consumer]; one != nil {
		one.stop()
	}
}

// rest is what a replay that was stopped, or failed, has left; false: there is nothing to go on with.
func (j *jobs) rest(consumer string) (jobSpec, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one := j.by[consumer]
	if one == nil || !one.goesOn() {
		return jobSpec{}, false
	}
	spec := one.spec
	spec.before = one.replayed
	spec.number -= one.replayed - one.spec.before
	return spec, true
}

// goesOn says whether there is something left that can be gone on with.
func (one *job) goesOn() bool {
	return (one.state == jobStopped || one.state == jobFailed) && one.spec.kind == jobReplay &&
		one.spec.number > one.replayed-one.spec.before
}

// close stops all jobs, and waits for them until patience is over. What a replay has on its way to a broker that is away may take
// longer; its letters are found by the next replay, so the end of the process need not wait for that.
func (j *jobs) close(patience time.Duration) {
	j.mu.Lock()
	j.closed = true
	for _, one := range j.by {
		one.stop()
	}
	j.mu.Unlock()
	ended := make(chan struct{})
	go func() { defer close(ended); j.running.Wait() }()
	over := time.NewTimer(patience)
	defer over.Stop()
	select {
	case <-ended:
	case <-over.C:
	}
}

// An outcome is how a job ended.
type outcome struct {
	lines    []string
	replayed int64
	stopped  bool
	err      error
}

// run does the job. It blocks until that is done, or ctx has ended and what was on its way is finished.
func (one *job) run(ctx context.Context, progress func(done, of int64)) outcome {
	l, err := deadletters.New(one.spec.box.Config)
	if err != nil {
		return outcome{err: err}
	}
	if one.spec.kind == jobPurge {
		return one.spec.purge(ctx, l)
	}
	r, err := replayOf(ctx, one.spec.order, one.spec.box)
	if err != nil {
		return outcome{err: err}
	}
	r.OnProgress = progress
	if e := one.spec.edit; e != nil {
		r.Edit = e.Apply
	}
	sum, err := l.Replay(ctx, r)
	if err == nil && one.spec.kind == jobEdit && sum.Replayed == 0 && !sum.Stopped { // refused, or it had arrived before
		err = errUnpublished
	}
	return outcome{lines: summaryLines(sum), replayed: sum.Replayed, stopped: sum.Stopped, err: err}
}

// purge deletes what the plan named, and nothing if that are other letters by now: as many as before they may be all the same,
// where some are gone and others have come.
func (s jobSpec) purge(ctx context.Context, l *deadletters.Letters) outcome {
	f, err := s.meant(s.box)
	if err != nil {
		return outcome{err: err}
	}
	p, err := l.PlanPurge(ctx, f)
	if n := int64(len(p.Places)); err == nil && (n != s.number || p.Sum() != s.sum) {
		err = fmt.Errorf("nothing was deleted: there are %s to delete by now, not just the %d that the plan named; look at it again",
			letters(n), s.number)
	}
	if err == nil {
		err = l.Purge(ctx, p)
	}
	if err != nil {
		return outcome{err: err, stopped: ctx.Err() != nil}
	}
	return outcome{lines: []string{letters(s.number) + " deleted"}}
}

// summaryLines tell what a replay did.
func summaryLines(s deadletters.Summary) (lines []string) {
	lines = append(lines, fmt.Sprintf("%s replayed", letters(s.Replayed)))
	add := func(n int64, what string) {
		if n > 0 {
			lines = append(lines, fmt.Sprintf("%s %s", letters(n), what))
		}
	}
	add(s.Refused, "refused")
	add(s.Before, "replayed before")
	add(int64(len(s.Found)), "on their way when an earlier replay was stopped, had arrived, not published again")
	add(int64(len(s.Absent)), "on their way when an earlier replay was stopped, had not arrived, waiting again")
	add(int64(len(s.LostEdits)), "of those edited copies that were not published: edit them again")
	add(int64(len(s.PerhapsTwice)), "perhaps there twice: nobody can tell whether they had arrived before")
	for i, r := range s.Refusals {
		if i == maxReasons {
			lines = append(lines, fmt.Sprintf("and %d more", len(s.Refusals)-i))
			break
		}
		lines = append(lines, deadletters.FormatPlace(r.Place)+": "+plain(r.Err.Error(), fieldBytes))
	}
	return lines
}

// A jobView is a job as it is shown.
type jobView struct {
	Consumer string
	Kind     string
	Topic    string
	State    string
	Done, Of int64
	Took     string
	Result   []string
	Err      string
	Running  bool
	GoesOn   bool
}

// view is a consumer's last job; nil: there was none.
func (j *jobs) view(consumer string) *jobView {
	j.mu.Lock()
	defer j.mu.Unlock()
	one := j.by[consumer]
	if one == nil {
		return nil
	}
	v := &jobView{
		Consumer: consumer, Kind: one.spec.kind, Topic: one.spec.box.Topic, State: one.state, Done: one.done, Of: one.of,
		Result:  one.result,
		Running: one.state == jobRunning, GoesOn: one.goesOn(),
	}
	end := one.ended
	if end.IsZero() {
		end = time.Now()
	}
	v.Took = duration(end.Sub(one.began))
	if one.err != nil {
		v.Err = plain(one.err.Error(), errorBytes)
	}
	return v
}

// jobPart is the fragment of a job.
type jobPart struct {
	shell
	Name string
	Job  *jobView
}

func (d *desk) jobLive(w http.ResponseWriter, r *http.Request, c *watched) {
	d.show(w, r, http.StatusOK, "job", jobPart{d.shell(r, c.name), c.name, d.jobs.view(c.name)})
}

func (d *desk) stopJob(w http.ResponseWriter, r *http.Request, c *watched) {
	d.jobs.halt(c.name)
	d.changes.tell(r, c, nil)
	http.Redirect(w, r, lettersOf(c, r.PostForm.Get("box")), http.StatusSeeOther)
}

// continueJob begins what is left of a replay that was stopped.
func (d *desk) continueJob(w http.ResponseWriter, r *http.Request, c *watched) {
	spec, ok := d.jobs.rest(c.name)
	err := errors.New("there is nothing to go on with")
	if ok {
		err = d.jobs.start(spec)
	}
	if err != nil {
		d.listLetters(w, r, c, http.StatusConflict, err)
		return
	}
	d.changes.tell(r, c, spec.fields())
	http.Redirect(w, r, lettersOf(c, spec.box.Topic), http.StatusSeeOther)
}

// startEdit makes the edit of one letter the consumer's job.
func (d *desk) startEdit(r *http.Request, c *watched, v letterView, e *edit) error {
	box, err := c.boxOf(choice{Box: v.Topic})
	if err != nil {
		return err
	}
	if v.Letter.State == deadletters.Replayed && !e.again {
		return errors.New("it was replayed before: say that it is to be replayed again")
	}
	if err := broker.CheckDestination(e.to); e.to != "" && err != nil {
		return fmt.Errorf("to: %w", err)
	}
	o := order{choice: choice{Box: v.Topic, Scope: scopeTicked, Places: []string{v.Place}}, kind: jobEdit, to: e.to, again: e.again,
		number: 1, by: byOf(r)}
	if err := d.jobs.start(jobSpec{order: o, consumer: c.name, box: box, edit: e}); err != nil {
		return err
	}
	d.changes.tell(r, c, map[string]any{"letter": v.Place})
	return nil
}
