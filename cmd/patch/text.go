package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"sgpatch/verify"
)

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminal(f)
}

// print writes a report: JSON, or the text for people, and returns its exit code.
func (o *options) print(r *Report, stdout, stderr io.Writer) int {
	if o.json {
		if r.Diff == "" && r.text != "" {
			r.Diff = r.text // help, version, show of a set without code
		}
		if err := r.encode(stdout); err != nil {
			fmt.Fprintln(stderr, "sgpatch:", err)
			return exitFailed
		}
		return r.Exit
	}
	if r.Error != "" {
		printError(r, stderr)
		return r.Exit
	}
	out := stdout
	if o.hasCmd && o.command.name == "verify" {
		out = stderr // standard output belongs to CMD
	}
	if !o.quiet || r.Exit != exitOK {
		var text strings.Builder // written at once: other programs write to the same log
		p := printer{&text, o.colour(out), o.verbose, onTerminal(out)}
		p.report(r)
		io.WriteString(out, text.String())
	}
	return r.Exit
}

func printError(r *Report, w io.Writer) {
	p := printer{w: w}
	p.line("sgpatch: %s", r.Error)
	if in := r.Install; in != nil {
		p.line("(SGLang %s in %s, Python %s)", orDash(in.Release), in.Root, orDash(in.Python))
	}
	for _, f := range r.Findings {
		if f.Message != r.Error && (f.Severity != "note" || f.Code == "recovered") {
			p.line("%s: %s", f.Severity, f.Message)
		}
	}
	if r.Exit == exitRefused && !strings.Contains(r.Error, "nothing was changed") && (r.Command == "apply" || r.Command == "revert") {
		nothing := "nothing"
		if slices.ContainsFunc(r.Findings, func(f verify.Finding) bool { return f.Code == "recovered" }) {
			nothing = "nothing else"
		}
		p.line("%s was changed", nothing)
	}
	if r.Hint != "" {
		p.line("next: %s", r.Hint)
	}
}

type printer struct {
	w        io.Writer
	colour   bool
	verbose  bool
	terminal bool // a person sees it, and no program reads it
}

// painted is text that is shown as it is.
type painted string

// line prints a line. What it is made of may be the words of a file, of a host
// or of a patch set: none of it can steer a terminal, or pass for another line.
func (p printer) line(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = inset(s)
		}
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}

// inset is text whose further lines stand further in.
func inset(s string) string { return strings.ReplaceAll(visible(s), "\n", "\n    ") }

// visible writes out what would not be seen as itself: control characters,
// marks that turn the direction of writing, bytes that are no UTF-8.
func visible(s string) string {
	fine := func(r rune) bool { return r == '\n' || r == '\t' || unicode.IsGraphic(r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !fine(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if fine(r) && !(r == utf8.RuneError && n == 1) {
			b.WriteString(s[i : i+n])
		} else {
			b.WriteString(strings.Trim(strconv.Quote(s[i:i+n]), `"`))
		}
		i += n
	}
	return b.String()
}

func (p printer) paint(code, s string) painted {
	if s = inset(s); p.colour && code != "" {
		s = "\x1b[" + code + "m" + s + "\x1b[0m"
	}
	return painted(s)
}

func (p printer) report(r *Report) {
	if r.text != "" {
		io.WriteString(p.w, visible(r.text))
		return
	}
	if r.Install != nil && r.Command != "show" {
		p.install(r.Install)
	}
	switch r.Command {
	case "history":
		p.history(r)
	case "list":
		p.list(r)
	case "show":
	case "doctor":
		p.checks(r.Checks)
	case "preflight":
		if r.Measurements != nil {
			p.measured(r.Measurements.Result)
		}
	case "trial":
		if r.Measurements != nil {
			p.tried(r.Measurements.trial, r.Exit != exitBroken)
		}
	default:
		p.sets(r)
	}
	p.diff(r.Diff)
	p.changed(r)
	p.findings(r.Findings)
	p.verdict(r)
}

func (p printer) install(in *InstallReport) {
	where := in.Root
	if in.Editable {
		where += " (editable)"
	}
	p.line("SGLang   %s in %s", orDash(in.Release), where)
	p.line("Python   %s", orDash(in.Python))
	p.line("entry    %s", orDash(in.Sitecustomize))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

var stateColour = map[string]string{"held": "32", "partial": "31", "drifted": "31", "foreign": "31", "undone": "33", "unsupported": "33"}

func (p printer) sets(r *Report) {
	for _, s := range r.Sets {
		state, note := s.State, ""
		switch {
		case s.Variant != "" && s.Listed:
			state, note = fmt.Sprintf("%-12s", state), fmt.Sprintf(" variant %s, listed", s.Variant)
		case s.Variant != "":
			state, note = fmt.Sprintf("%-12s", state), fmt.Sprintf(" variant %s, unlisted content", s.Variant)
		}
		p.line("%-22s %s%s", s.ID, p.paint(stateColour[s.State], state), note)
		if s.State == "unsupported" || s.State == "foreign" {
			p.line("    %s", s.Reason)
		}
		if s.enabled || p.verbose {
			p.files(s)
		}
	}
	if r.Receipt != nil && r.Command == "status" {
		l := r.Receipt.Last
		p.line("last     %s %s, %s%s", l.Command, strings.Join(l.Sets, " "), l.Time.Format("2006-01-02 15:04:05 MST"), because(l.Reason, l.Result))
	}
}

func because(reason, result string) string {
	s := ""
	if reason != "" {
		s += ": " + reason
	}
	if result != "" {
		s += " (" + result + ")"
	}
	return strings.ReplaceAll(s, "\n", " ")
}

func (p printer) files(s SetReport) {
	for _, f := range s.Files {
		p.line("    %-10s %s", f.State, f.Path)
		for i, h := range f.Hunks {
			if p.verbose || h.State != "ok" {
				p.line("        hunk %d  line %d, offset %+d, %s", i+1, h.Line, h.Offset, h.State)
			}
		}
		if p.verbose {
			p.line("        pristine %s\n        want     %s\n        have     %s", orDash(f.Pristine), orDash(f.Want), orDash(f.Have))
		}
	}
	for _, e := range s.Env {
		have := "absent"
		if e.Have != nil {
			have = *e.Have
		}
		from := ""
		if e.From != "" {
			from = "  from " + e.From
		}
		p.line("    %-10s %s=%s%s", e.State, e.Name, have, from)
	}
}

func (p printer) list(r *Report) {
	for _, any := range r.Entries {
		e := any.(listEntry)
		p.line("%s %s  %s", e.ID, e.Version, e.Title)
		if n := len(e.Releases); n > 0 {
			p.line("    releases  %d, %s to %s", n, e.Releases[0], e.Releases[n-1])
		} else if e.Variants > 0 {
			p.line("    releases  none in a table; any content that its hunks fit")
		} else {
			p.line("    releases  all (environment only)")
		}
		if e.State != "" {
			p.line("    here      %s %s", e.State, e.Fits)
		}
		for _, v := range e.Env {
			if v.Value != "" {
				p.line("    entry     %s=%s", v.Name, v.Value)
			}
		}
		for _, x := range e.Results {
			p.line("    result    %s: %s; %s", x.Outcome, x.Hardware, x.Text)
		}
		if p.verbose {
			for _, n := range e.Notes {
				p.line("    note      %s", n)
			}
			p.line("    %s", strings.Join(e.Releases, " "))
		}
	}
}

func (p printer) history(r *Report) {
	if len(r.Entries) == 0 {
		p.line("nothing was done on this machine yet, as far as %s knows", historyFile())
	}
	for _, any := range r.Entries {
		e := any.(HistoryEntry)
		where := ""
		if e.Install != nil {
			where = e.Install.Root + " (" + orDash(e.Install.Release) + ")"
		}
		p.line("%s  %-7s %-28s by %s  %s%s", e.Time.Format("2006-01-02 15:04:05"), e.Command, strings.Join(e.Sets, " "), e.User, where, because(e.Reason, e.Result))
	}
}

func (p printer) diff(text string) {
	for line := range strings.Lines(text) {
		code := ""
		switch {
		case strings.HasPrefix(line, "@@"):
			code = "36"
		case strings.HasPrefix(line, "+"):
			code = "32"
		case strings.HasPrefix(line, "-"):
			code = "31"
		}
		if p.terminal || p.colour {
			line = string(p.paint(code, strings.TrimRight(line, "\n"))) + "\n"
		}
		io.WriteString(p.w, line) // a program gets every byte of it
	}
}

func (p printer) changed(r *Report) {
	if r.Command != "apply" && r.Command != "revert" {
		return
	}
	verb := "changed "
	if r.DryRun {
		verb = "would change "
	}
	for _, c := range r.Changed {
		p.line("%s %s", verb, c)
	}
	if len(r.Changed) == 0 {
		p.line("nothing to change")
	}
}

func (p printer) findings(all []verify.Finding) {
	for _, f := range all {
		code := map[string]string{"error": "31", "warning": "33"}[f.Severity]
		p.line("%s: %s", p.paint(code, f.Severity), f.Message)
		if f.Hint != "" {
			p.line("    next: %s", f.Hint)
		}
	}
}

func (p printer) verdict(r *Report) {
	if m := r.Measurements; m != nil {
		verdict := ""
		if m.trial != nil {
			verdict = m.trial.Verdict
		} else {
			verdict = m.Verdict
		}
		p.line("%s", p.paint(map[bool]string{true: "32", false: "31"}[r.Exit == exitOK], verdict))
	}
	if r.Command != "verify" {
		return
	}
	if r.Exit == exitOK {
		p.line("%s", p.paint("32", "holds"))
	} else {
		p.line("%s", p.paint("31", "does not hold"))
	}
}
