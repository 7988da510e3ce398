package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"sync"

	"sgpatch/patcher"
	"sgpatch/remote"
)

// fleet runs one command on many hosts and prints their reports in the order
// in which the hosts were given.
type fleet struct {
	o       *options
	dialer  *remote.Dialer
	request []byte
	names   []string
	stdout  io.Writer
	stderr  io.Writer

	mu       sync.Mutex
	reports  []*Report
	before   map[string][]string // --revert-on-failure: the sets that were in place on a host
	held     bool                // nothing is printed yet
	printed  int
	asking   []string
	progress *progress
}

func (o *options) runFleet(stdout, stderr io.Writer) int {
	names, err := o.fleet.names()
	var request []byte
	if err == nil {
		request, err = o.request()
	}
	if err != nil {
		r := newReport(o.command.name)
		r.fail(err)
		return o.print(r, stdout, stderr)
	}
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals...)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt does not wait for anybody
	f := &fleet{o: o, dialer: o.dialer(terminal{ctx}), request: request, names: names, stdout: stdout, stderr: stderr, reports: make([]*Report, len(names)), progress: o.progressOn(stderr)}
	f.run(ctx)
	f.dialer.Close()
	f.progress.clear()
	f.summary()
	code := exitOK
	for _, r := range f.reports {
		code = max(code, r.Exit)
	}
	return code
}

func (o *options) dialer(tty terminal) *remote.Dialer {
	return &remote.Dialer{
		Config: o.fleet.sshConfig, Command: strings.Fields(o.fleet.sshCommand), Timeout: o.fleet.connectTimeout,
		Become: o.fleet.become, AcceptNew: o.fleet.acceptNew, Verb: farVerb, Ask: tty.asker(), Record: patcher.Record,
	}
}

// run asks the canaries, then the others.
func (f *fleet) run(ctx context.Context) {
	f.held = f.o.fleet.takeBack && !f.o.dry
	first := min(f.o.fleet.canary, len(f.names))
	f.batch(ctx, 0, first)
	f.batch(ctx, first, len(f.names))
	if f.held {
		f.takeBack(ctx)
		f.held = false
		f.printReady()
	}
}

func (f *fleet) batch(ctx context.Context, from, to int) {
	slots := make(chan struct{}, f.o.fleet.parallel)
	var running sync.WaitGroup
	for i := from; i < to; i++ {
		slots <- struct{}{}
		if bad := f.failed(); bad != "" {
			f.finish(i, f.notStarted(i, bad))
			<-slots
			continue
		}
		f.begin(i)
		running.Go(func() {
			f.finish(i, f.ask(ctx, i))
			<-slots
		})
	}
	running.Wait()
}

// failed is a host after which apply does not go on to others; "" for none.
func (f *fleet) failed() string {
	if f.o.command.name != "apply" || f.o.fleet.keepGoing {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range f.reports {
		if r != nil && r.Exit != exitOK {
			return f.names[i]
		}
	}
	return ""
}

func (f *fleet) newReport(i int) *Report {
	r := newReport(f.o.command.name)
	r.Host, r.DryRun = f.names[i], f.o.dry
	return r
}

func (f *fleet) notStarted(i int, bad string) *Report {
	r := f.newReport(i)
	r.fail(&patcher.RefusedError{Code: "not-started", Message: fmt.Sprintf("%s was not asked, because %s failed; nothing was changed", f.names[i], bad), Hint: "mend " + bad + ", or go on without it: --keep-going"})
	return r
}

// ask has one host do it.
func (f *fleet) ask(ctx context.Context, i int) *Report {
	if f.held {
		if r := f.lookBefore(ctx, i); r.Exit == exitUnreached || r.Exit == exitInterrupted {
			return r
		}
	}
	return f.send(ctx, i, f.request)
}

func (f *fleet) send(ctx context.Context, i int, request []byte) *Report {
	r := f.newReport(i)
	a, err := f.dialer.Run(ctx, f.names[i], request)
	var answer farAnswer
	switch {
	case errors.Is(err, context.Canceled):
		r.fail(errInterrupted)
	case err != nil:
		r.fail(err)
	case json.Unmarshal(a.Output, &answer) != nil || answer.Report == nil:
		r.fail(&remote.Error{Host: f.names[i], Err: fmt.Errorf("what it answered is not a report (its exit status is %d)", a.Exit), Hint: "sgpatch status"})
	default:
		r = answer.unpack()
	}
	r.Host = f.names[i]
	r.Hint = here(r.Hint, r.Host)
	for i := range r.Findings {
		r.Findings[i].Hint = here(r.Findings[i].Hint, r.Host)
	}
	return r
}

// here makes a command to type there one to type here.
func here(hint, host string) string {
	if strings.HasPrefix(hint, "sgpatch ") && !strings.ContainsAny(hint, "(),;:…\n") {
		return hint + " --host " + host
	}
	return hint
}

func (f *fleet) begin(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking = append(f.asking, f.names[i])
	f.show()
}

// finish keeps a report, and prints those whose turn it is.
func (f *fleet) finish(i int, r *Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports[i] = r
	f.asking = slices.DeleteFunc(f.asking, func(n string) bool { return n == f.names[i] })
	f.printReady()
	f.show()
}

func (f *fleet) printReady() {
	for !f.held && f.printed < len(f.reports) && f.reports[f.printed] != nil {
		f.progress.clear()
		r := f.reports[f.printed]
		f.print(r)
		f.reports[f.printed] = &Report{Exit: r.Exit} // of ten thousand hosts not all are kept
		f.printed++
	}
}

func (f *fleet) print(r *Report) {
	if len(f.names) > 1 && !f.o.json && (!f.o.quiet || r.Exit != exitOK) {
		w := f.stdout
		if r.Error != "" {
			w = f.stderr
		}
		fmt.Fprintf(w, "== %s\n", r.Host)
	}
	f.o.print(r, f.stdout, f.stderr)
}

var exitWords = []struct {
	exit int
	word string
}{{exitOK, "done"}, {exitVerdict, "no"}, {exitUsage, "usage"}, {exitRefused, "refused"}, {exitUnreached, "not reached"}, {exitFailed, "failed"}, {exitBroken, "failed and not put back"}, {exitInterrupted, "interrupted"}}

// summary is the last line: how many hosts ended how, and which were not fine.
func (f *fleet) summary() {
	if len(f.names) < 2 {
		return
	}
	by := map[int][]string{}
	for i, r := range f.reports {
		by[r.Exit] = append(by[r.Exit], f.names[i])
	}
	var parts []string
	for _, w := range exitWords {
		if n := len(by[w.exit]); n > 0 && w.exit == exitOK {
			parts = append(parts, fmt.Sprintf("%d %s", n, f.fine()))
		} else if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s)", n, w.word, strings.Join(by[w.exit], " ")))
		}
	}
	w := f.stdout
	if f.o.json {
		w = f.stderr
	}
	if !f.o.quiet || len(by[exitOK]) < len(f.names) {
		fmt.Fprintf(w, "%d hosts: %s\n", len(f.names), strings.Join(parts, ", "))
	}
}

func (f *fleet) fine() string {
	if f.o.command.name == "verify" {
		return "hold"
	}
	return "done"
}

func (f *fleet) show() {
	f.progress.show(f.printedOrDone(), len(f.names), f.asking)
}

func (f *fleet) printedOrDone() (done int) {
	for _, r := range f.reports {
		if r != nil {
			done++
		}
	}
	return done
}

// progress is one line on a terminal that is written over and over.
type progress struct {
	w     io.Writer // nil: nobody looks
	shown bool
}

func (o *options) progressOn(w io.Writer) *progress {
	if !o.quiet && onTerminal(w) {
		return &progress{w: w}
	}
	return &progress{}
}

func (p *progress) show(done, all int, asking []string) {
	if p.w == nil || done == all {
		return
	}
	text := fmt.Sprintf("%d of %d hosts; waiting for %s", done, all, strings.Join(asking, " "))
	if len(text) > 76 {
		text = text[:73] + "..."
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", text)
	p.shown = true
}

func (p *progress) clear() {
	if p.shown {
		io.WriteString(p.w, "\r\x1b[K")
		p.shown = false
	}
}
