package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/patcher/patchset"
	"sgpatch/verify"
	"sgpatch/verify/trial"
)

// trialOptions are the flags of trial.
type trialOptions struct {
	runs            int
	metrics, guards []string
	limit           time.Duration
	server, ready   string
	bench           string
	readyIn         time.Duration
}

func trialFlags(f *pflag.FlagSet, o *options) {
	f.StringVar(&o.reason, "reason", "", "why, for the records, `TEXT`")
	f.IntVar(&o.try.runs, "runs", 6, "runs of CMD without and with the sets, `N` each")
	f.StringArrayVar(&o.try.metrics, "metric", nil, "`NAME=REGEX[:higher|lower]`: a number in what CMD prints, or json:FIELD in its lines of JSON (repeatable, the first decides)")
	f.StringArrayVar(&o.try.guards, "guard", nil, "`NAME=REGEX[:PERCENT]`: a number that must not differ (repeatable)")
	f.DurationVar(&o.try.limit, "timeout", 0, "time for one run, `DUR` (none)")
	f.StringVar(&o.try.server, "server", "", "instead of CMD: a shell `LINE` that starts the server, anew for each run")
	f.StringVar(&o.try.ready, "ready", "", "the server is up when it answers this http `URL`")
	f.DurationVar(&o.try.readyIn, "ready-timeout", 15*time.Minute, "how long it may take to come up, `DUR`")
	f.StringVar(&o.try.bench, "bench", "", "the shell `LINE` that drives the server and prints the numbers")
}

// experiment is a trial under way.
type experiment struct {
	o       *options
	r       *Report
	p       *place
	sets    []string
	flips   map[string]string // the variables that switch the sets' code
	stays   bool              // those alone are thrown: the code stays in place
	before  bool              // all of them were in place
	some    bool              // one of them was
	bare    []string          // that have no entry, which stays out
	entries map[string]string // of their entries, as they were
	stamp   string
	metrics []trial.Metric
	guards  []trial.Metric
	result  *trial.Result
	values  map[string][2][]float64 // by metric and guard: without, with
}

func (o *options) validateTrial() error {
	t := o.try
	served := t.server != "" || t.bench != "" || t.ready != ""
	switch {
	case served && (t.server == "" || t.bench == "" || t.ready == ""):
		return usagef("--server, --ready and --bench go together")
	case served == o.hasCmd:
		return usagef("what is measured is the command behind --, or --server, --ready and --bench")
	case t.runs < 1 || t.runs > 50:
		return usagef("--runs %d: 1 to 50", t.runs)
	case t.limit < 0 || t.readyIn <= 0:
		return usagef("a time to wait is not negative")
	}
	if served {
		if _, err := parseReady(t.ready); err != nil {
			return err
		}
	}
	return nil
}

func trialCommand(ctx context.Context, o *options) (*Report, error) {
	r := newReport("trial")
	e := &experiment{o: o, r: r, sets: unique(o.args), values: map[string][2][]float64{}}
	if len(e.sets) == 0 {
		e.sets = []string{defaultSet}
	}
	if err := errors.Join(o.validateTrial(), e.read()); err != nil {
		return r, usageError{err}
	}
	p, err := o.open(ctx, r, install.Query{})
	if err != nil {
		return r, err
	}
	for _, id := range e.sets {
		if err := p.exists(id); err != nil {
			return r, err
		}
	}
	e.p, e.before = p, true
	e.flips, e.stays = switches(p, e.sets)
	e.remember()
	e.stamp = fmt.Sprintf("of %s, begun %s by process %d", strings.Join(e.sets, " "), time.Now().UTC().Format("2006-01-02 15:04:05"), os.Getpid())
	e.result = &trial.Result{Sets: e.sets, Runs: o.try.runs, Metrics: []trial.Comparison{}, Guards: []trial.Comparison{}, Seconds: []float64{}}
	if err := e.place(ctx, true, e.stamp); err != nil { // what cannot be applied is said before anything runs
		return r, err
	}
	err = e.run(ctx)
	return r, e.end(err)
}

func (e *experiment) read() (err error) {
	for _, s := range e.o.try.metrics {
		m, err := trial.ParseMetric(s)
		if err != nil {
			return usagef("--metric %w", err)
		}
		e.metrics = append(e.metrics, m)
	}
	for _, s := range e.o.try.guards {
		g, err := trial.ParseGuard(s)
		if err != nil {
			return usagef("--guard %w", err)
		}
		e.guards = append(e.guards, g)
	}
	for _, list := range [][]trial.Metric{e.metrics, e.guards} {
		for i, m := range list {
			if slices.ContainsFunc(list[:i], func(o trial.Metric) bool { return o.Name == m.Name }) {
				return usagef("two numbers are called %s", m.Name)
			}
		}
	}
	return nil
}

// remember notes how the sets are in place, so that they come back like that.
func (e *experiment) remember() {
	e.entries = map[string]string{}
	for _, s := range pick(e.p.sets, e.sets) {
		was, in := e.p.site.Receipt.Set(s.ID)
		e.before, e.some = e.before && in, e.some || in
		if was.NoEnv {
			e.bare = append(e.bare, s.ID)
		}
		for _, v := range was.Env {
			if slices.ContainsFunc(s.Env, func(d patchset.EnvEntry) bool { return d.Name == v.Name }) {
				e.entries[v.Name] = v.Value
			}
		}
		for _, d := range s.Env {
			if v, ok := e.entries[d.Name]; ok && d.Switch && !verify.On(v) {
				e.entries[d.Name] = d.Value // what is measured is the set switched on
			}
		}
	}
}

// switches are the variables that turn the code of sets off. They are enough if
// every set has one and no other value by default: otherwise the sets are taken
// out and put in for each run.
func switches(p *place, ids []string) (all map[string]string, enough bool) {
	all, enough = map[string]string{}, true
	for _, s := range pick(p.sets, ids) {
		has := false
		for _, e := range s.Env {
			if e.Switch && len(s.Variants) > 0 {
				all[e.Name], has = e.Value, true
			} else if !e.Optional {
				enough = false
			}
		}
		enough = enough && has
	}
	return all, enough
}

// place puts the sets in, or takes them out. The receipt says that a trial is
// under way until stamp is "".
func (e *experiment) place(ctx context.Context, in bool, stamp string) error {
	checker := e.o.checker(ctx, e.p)
	goal := patcher.Goal{Command: "apply", Apply: e.sets, Named: true, Bare: e.bare, Env: e.entries, Told: e.o.told(), Reason: e.o.reason, Result: e.result.Short(), Trial: stamp,
		Prove: func(proof patcher.Proof) error { return checker.Prove(ctx, proof) }}
	if !in {
		goal.Command, goal.Apply, goal.Env, goal.Revert = "revert", nil, nil, e.sets
	}
	if stamp != "" {
		goal.Reason, goal.Result = "trial", ""
	}
	site, err := patcher.Open(e.p.site.In, e.p.sets)
	if err != nil {
		return err
	}
	out, err := patcher.Converge(ctx, site, goal, patcher.Options{Wait: e.o.wait})
	for _, c := range out.Changed {
		if !contains(e.r.Changed, c) {
			e.r.Changed = append(e.r.Changed, c)
		}
	}
	if err != nil || stamp == "" {
		e.r.Findings = append(e.r.Findings, out.Findings...)
		e.r.Sets = []SetReport{}
		for _, v := range out.Site.Views() {
			if contains(e.sets, v.ID) {
				e.r.set(v, envAfter(out.Site, v))
			}
		}
	}
	return err
}

// run runs all of it; what fails is a verdict, and an error is one of ours.
func (e *experiment) run(ctx context.Context) error {
	began := time.Now()
	order := trial.Order(e.o.try.runs)
	for i, with := range order {
		e.progress(i, len(order), with, began)
		if site, err := patcher.Open(e.p.site.In, e.p.sets); err == nil && site.Receipt.Trial != e.stamp {
			e.result.Verdict, e.result.Why = trial.Failed, fmt.Sprintf("before run %d: another command applied or reverted these sets meanwhile", i+1)
			return nil
		}
		if !e.stays {
			if err := e.place(ctx, with, e.stamp); err != nil {
				if errors.Is(err, context.Canceled) {
					err = errInterrupted
				}
				return err
			}
		}
		start := time.Now()
		output, err := e.once(ctx, with)
		e.result.Seconds = append(e.result.Seconds, time.Since(start).Seconds())
		if ctx.Err() != nil {
			return errInterrupted
		}
		if err == nil {
			err = e.note(output, with)
		}
		if err != nil {
			e.result.Verdict, e.result.Why = trial.Failed, fmt.Sprintf("run %d (%s): %v", i+1, way(with), err)
			return nil
		}
	}
	for _, m := range e.metrics {
		e.result.Metrics = append(e.result.Metrics, trial.Compare(m.Name, m.Higher, e.values["m "+m.Name][0], e.values["m "+m.Name][1]))
	}
	for _, g := range e.guards {
		e.result.Guards = append(e.result.Guards, trial.Compare(g.Name, true, e.values["g "+g.Name][0], e.values["g "+g.Name][1]))
	}
	e.result.Judge(e.guards)
	return nil
}

func way(with bool) string {
	if with {
		return "with"
	}
	return "without"
}

// note reads the numbers of a run. Without a metric from the operator the first
// run says which of SGLang's benchmarks it is.
func (e *experiment) note(output []byte, with bool) error {
	if len(e.metrics) == 0 {
		e.recognise(output)
	}
	if len(e.metrics) == 0 {
		return errors.New("it printed no number that is known: name one with --metric NAME=REGEX; its last lines: " + lastLines(output))
	}
	for _, list := range []struct {
		kind string
		all  []trial.Metric
	}{{"m ", e.metrics}, {"g ", e.guards}} {
		for _, m := range list.all {
			v, ok := m.Read(output)
			if !ok {
				return fmt.Errorf("it did not print %s; its last lines: %s", m.Name, lastLines(output))
			}
			sides := e.values[list.kind+m.Name]
			if with {
				sides[1] = append(sides[1], v)
			} else {
				sides[0] = append(sides[0], v)
			}
			e.values[list.kind+m.Name] = sides
		}
	}
	return nil
}

func (e *experiment) recognise(output []byte) {
	for _, s := range trial.Known {
		if m, err := trial.ParseMetric(s); err == nil {
			if _, ok := m.Read(output); ok {
				e.metrics = append(e.metrics, m)
				break
			}
		}
	}
	if g, err := trial.ParseGuard(trial.KnownGuard); err == nil && len(e.guards) == 0 && len(e.metrics) > 0 {
		if _, ok := g.Read(output); ok {
			e.guards = append(e.guards, g)
		}
	}
}

// lastLines is the end of an output, short enough for the records: a bar that
// shows progress is one line of any length.
func lastLines(output []byte) string {
	const most = 300
	output = output[max(0, len(output)-64<<10):]
	lines := strings.FieldsFunc(strings.TrimSpace(string(output)), func(r rune) bool { return r == '\n' || r == '\r' })
	lines = lines[max(0, len(lines)-3):]
	for i, l := range lines {
		if len(l) > most {
			l = "…" + l[len(l)-most:]
		}
		lines[i] = strings.ToValidUTF8(l, "")
	}
	return strings.Join(lines, " / ")
}

// end keeps the sets, or takes them out, whatever happened before; an interrupt
// does not stop that.
func (e *experiment) end(err error) error {
	e.r.Measurements = &measurements{trial: e.result}
	if errors.Is(err, errInterrupted) && e.some {
		err = stoppedError{}
	}
	keep := err == nil && e.result.Verdict == trial.Better
	if err != nil && e.result.Verdict == "" {
		e.result.Verdict, e.result.Why = trial.Failed, err.Error()
	}
	if perr := e.place(context.Background(), keep, ""); perr != nil {
		return &leftError{e.p.site, perr}
	}
	if e.result.Kept = keep; (keep && e.before) || (!keep && !e.some) {
		e.r.Changed = []string{} // they are as they were
	}
	if err != nil {
		if len(e.r.Changed) > 0 { // what was in place is out: that is remembered
			e.r.Exit = exitCode(err)
			e.o.record(e.r, patcher.Goal{Command: "trial", Apply: e.sets, Reason: e.o.reason, Result: e.result.Short()})
		}
		return err
	}
	f := verify.Finding{Code: e.result.Verdict, Severity: "note", Message: e.result.Why}
	if !keep {
		e.r.Exit, f.Severity, f.Hint = exitVerdict, "error", "sgpatch history"
	}
	e.r.find(f)
	e.o.record(e.r, patcher.Goal{Command: "trial", Apply: e.sets, Reason: e.o.reason, Result: e.result.Short()})
	return nil
}

// stoppedError is an interrupt of a trial of sets that were in place before.
type stoppedError struct{}

func (stoppedError) Error() string {
	return "interrupted; the sets are out, also those that were in place before"
}
func (stoppedError) Is(target error) bool { return target == errInterrupted }

// leftError says that a trial could not put the sets where they belong.
type leftError struct {
	site *patcher.Site
	err  error // not unwrapped: as a refusal it would say that nothing was changed
}

func (e *leftError) Error() string {
	return fmt.Sprintf("the trial is not at its end: the sets in %s could not be kept or taken out: %v", e.site.In.Root, e.err)
}

// progress tells a person how far it is.
func (e *experiment) progress(i, n int, with bool, began time.Time) {
	if e.o.quiet || !onTerminal(os.Stderr) {
		return
	}
	left := ""
	if i > 0 {
		left = fmt.Sprintf(", about %s left", (time.Since(began) / time.Duration(i) * time.Duration(n-i)).Round(time.Second))
	}
	fmt.Fprintf(os.Stderr, "run %d of %d, %s %s%s\n", i+1, n, way(with), strings.Join(e.sets, " "), left)
}

// tried prints a trial.
func (p printer) tried(t *trial.Result, settled bool) {
	for _, list := range [][]trial.Comparison{t.Metrics, t.Guards} {
		for _, c := range list {
			if c.Says() != t.Why { // the verdict says it
				p.line("%s", c.Says())
			}
			if p.verbose {
				p.line("    without %s\n    with    %s", numbersOf(c.Without), numbersOf(c.With))
			}
		}
	}
	switch {
	case !settled: // the error says it
	case t.Kept:
		p.line("kept     %s", strings.Join(t.Sets, " "))
	default:
		p.line("reverted %s", strings.Join(t.Sets, " "))
	}
}

func numbersOf(all []float64) string {
	var words []string
	for _, v := range all {
		words = append(words, fmt.Sprintf("%.4g", v))
	}
	return strings.Join(slices.Clip(words), " ")
}
