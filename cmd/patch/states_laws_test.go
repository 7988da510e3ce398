package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sgpatch/verify"
)

// hold checks one world against the laws: what the contract says of every
// state, whatever the tables say.
func (f *fixture) hold(t *testing.T, o outcome) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s: %s", o.world, fmt.Sprintf(format, args...))
	}
	f.holdState(o, bad)
	f.holdVerdict(o, bad)
	f.holdApply(o, bad)
	f.holdRevert(o, o.revert, false, bad)
	f.holdRevert(o, o.named, true, bad)
	for name, a := range map[string]act{"apply": o.apply, "revert": o.revert, "revert two": o.named} {
		f.holdAct(o, a, func(format string, args ...any) { t.Helper(); bad(name+": "+format, args...) })
	}
	for _, r := range []*Report{o.status, o.verify, o.fast, o.apply.plain, o.revert.plain, o.named.plain, o.apply.dry, o.revert.dry, o.named.dry} {
		f.holdWords(r, bad)
	}
	f.holdWayOut(o, bad)
}

type complain func(format string, args ...any)

// nothing says that there is neither a package nor a record of one.
func (w world) nothing() bool { return w.noDir && (w.records == never || w.records == layer) }

// expected is the state of the set, worked out from its files as the contract
// names the states.
func (w world) expected(listed bool) string {
	gone := 0
	for _, s := range w.files {
		if s == pristine || s == other || s == missing {
			gone++
		}
	}
	switch {
	case w.records.receipt() && w.any(partial, elsewhere, inHunk):
		return "drifted"
	case w.records.receipt() && gone == 2:
		return "undone"
	case w.records.receipt() && (gone == 1 || !w.inForce()):
		return "partial"
	case w.records.receipt():
		return "held"
	case w.any(partial, elsewhere, inHunk), w.any(held) && !listed:
		return "foreign"
	case w.both(held):
		return "held"
	case w.any(held):
		return "partial"
	case w.any(missing):
		return "unsupported"
	}
	return "absent"
}

// inForce says whether the entry stands as apply wrote it.
func (w world) inForce() bool { return w.records.entry() && w.entry == "" }

func (f *fixture) holdState(o outcome, bad complain) {
	if o.nothing() {
		if o.status.Exit != exitRefused || o.verify.Exit != exitRefused || o.apply.plain.Exit != exitRefused {
			bad("there is nothing, and exit is %d, %d, %d", o.status.Exit, o.verify.Exit, o.apply.plain.Exit)
		}
		return
	}
	want := o.expected(f.listed)
	if o.status.Exit != exitOK || stateIn(o.status) != want {
		bad("status: %d, %s, want %s", o.status.Exit, stateIn(o.status), want)
	}
	if stateIn(o.verify) != want {
		bad("verify says %s, status %s", stateIn(o.verify), want)
	}
	for _, r := range []*Report{o.apply.plain, o.revert.plain, o.named.plain} {
		if got := stateIn(r); r.Exit == exitRefused && got != want {
			bad("refused, %s says %s, want %s", r.Command, got, want)
		}
	}
}

// holdVerdict: verify holds if every file is exactly as it has to be and the
// entry is in force, and never otherwise; --fast says the same, or nothing.
func (f *fixture) holdVerdict(o outcome, bad complain) {
	holds := o.both(held) && o.inForce() && (f.listed || o.records.receipt())
	switch {
	case o.nothing():
	case holds && o.verify.Exit != exitOK, !holds && o.verify.Exit != exitVerdict:
		bad("verify: exit %d, and holding is %v: %v", o.verify.Exit, holds, o.verify.Findings)
	}
	if o.fast.Exit != o.verify.Exit && o.fast.Exit != exitRefused {
		bad("verify --fast: %d, verify: %d", o.fast.Exit, o.verify.Exit)
	}
}

// holdAct: a dry run says what the other does; what is said to be changed is
// what changed; a refusal changes no byte; done is done.
func (f *fixture) holdAct(o outcome, a act, bad complain) {
	if a.dry.Exit != a.plain.Exit || a.dry.Error != a.plain.Error || a.dry.Hint != a.plain.Hint || !slices.Equal(a.dry.Changed, a.plain.Changed) || codes(a.dry, "") != codes(a.plain, "") {
		bad("dry run: %d %s %v %s; for good: %d %s %v %s", a.dry.Exit, a.dry.Error, a.dry.Changed, codes(a.dry, ""), a.plain.Exit, a.plain.Error, a.plain.Changed, codes(a.plain, ""))
	}
	if !slices.Contains([]int{exitOK, exitRefused}, a.plain.Exit) {
		bad("exit %d", a.plain.Exit)
	}
	if a.plain.Exit != exitOK {
		if a.changed != nil {
			bad("refused, and changed %v", a.changed)
		}
		return
	}
	records := filepath.Join(f.root, ".sgpatch")
	outside := slices.DeleteFunc(slices.Clone(a.changed), func(path string) bool { return path == records || strings.HasPrefix(path, records+"/") })
	said := slices.Sorted(slices.Values(a.plain.Changed))
	if !slices.Equal(outside, said) {
		bad("changed %v, and says %v", outside, said)
	}
	if a.again != nil && (a.again.Exit != exitOK || len(a.again.Changed) > 0) {
		bad("once more: %d, changes %v", a.again.Exit, a.again.Changed)
	}
}

// holdApply: it goes through if every file is a content that hunks can be put
// into, and then all holds, and can be taken out again.
func (f *fixture) holdApply(o outcome, bad complain) {
	can := !o.noDir && !o.any(partial, elsewhere, inHunk, missing) && o.entry != "marker damaged"
	if !o.records.receipt() && !f.listed && o.any(held) {
		can = false // our own bytes, but nothing says so
	}
	if a := o.apply; can != (a.plain.Exit == exitOK) {
		bad("apply: exit %d, and it could be done: %v", a.plain.Exit, can)
	} else if !can {
		return
	}
	for i, path := range code {
		want, back := f.texts[i][held], f.texts[i][pristine]
		if o.files[i] == other {
			want, back = f.later[i], f.texts[i][other]
		}
		if o.apply.tree[path] != want {
			bad("apply leaves %s as\n%s", path, o.apply.tree[path])
		}
		if o.apply.back[path] != back {
			bad("apply and revert leave %s as\n%s", path, o.apply.back[path])
		}
	}
	if o.apply.verify.Exit != exitOK {
		bad("apply ends with 0, and verify says %v", o.apply.verify.Findings)
	}
	if text, ok := o.apply.back["sitecustomize.py"]; ok {
		bad("apply and revert leave an entry:\n%s", text)
	}
}

// holdRevert: no hunk and no entry of ours is left, and what is not ours stays;
// or it is refused. What is nobody's gate it leaves, and says so.
func (f *fixture) holdRevert(o outcome, a act, byName bool, bad complain) {
	recorded := o.records.receipt()
	stuck := recorded && o.any(partial, inHunk) || !recorded && o.expected(f.listed) == "foreign"
	leaves := stuck && !recorded && !byName && (o.records != noReceipt || o.entry == "removed")
	refuses := stuck && !leaves || o.nothing() || o.entry == "marker damaged" && (recorded || o.both(held))
	if refuses != (a.plain.Exit == exitRefused) {
		bad("revert: exit %d, refuses %v", a.plain.Exit, refuses)
		return
	}
	if refuses {
		return
	}
	if leaves && !strings.Contains(codes(a.plain, ""), "foreign") {
		bad("revert leaves what it takes for somebody else's, and does not say so")
	}
	for i, path := range code {
		want, there := f.without(i, o.files[i]), o.files[i] != missing && !o.noDir
		if leaves {
			want = f.texts[i][o.files[i]]
		}
		if got, ok := a.tree[path]; got != want || ok != there {
			bad("revert leaves %s as\n%s", path, got)
		}
	}
	if text, ok := a.tree["sitecustomize.py"]; ok && !leaves && o.entry != "marker damaged" {
		bad("revert leaves an entry:\n%s", text)
	}
	if !o.nothing() && a.verify.Exit == exitOK {
		bad("after revert, verify holds")
	}
}

// without is a file of which our hunks are taken out.
func (f *fixture) without(i int, s fileState) string {
	switch s {
	case held:
		return f.texts[i][pristine]
	case elsewhere:
		return f.texts[i][pristine] + foreignLine
	}
	return f.texts[i][s]
}

// holdWords: what is not 0 has a reason that names a file or the install, and a
// next step; a step that starts with our name can be typed.
func (f *fixture) holdWords(r *Report, bad complain) {
	if r.Exit == exitOK {
		if r.Error != "" || !verify.Holds(r.Findings) {
			bad("%s: exit 0 with an error: %s %v", r.Command, r.Error, r.Findings)
		}
		return
	}
	if verify.Holds(r.Findings) {
		bad("%s: exit %d without a reason", r.Command, r.Exit)
	}
	named := false
	for _, x := range r.Findings {
		if x.Severity != "error" {
			continue
		}
		named = named || strings.Contains(x.Message, f.root) || (r.Exit == exitVerdict && x.Code == "env-off")
		if x.Hint == "" {
			bad("%s: no hint: %s", r.Command, x.Message)
		}
		for _, part := range strings.FieldsFunc(x.Hint, func(c rune) bool { return c == ';' || c == ':' || c == ',' || c == '(' || c == ')' }) {
			typed(part, bad)
		}
	}
	if !named {
		bad("%s: no file is named: %v", r.Command, r.Findings)
	}
	if r.Command == "apply" || r.Command == "revert" {
		var text bytes.Buffer
		printError(r, &text)
		if !strings.Contains(text.String(), "nothing was changed") || !strings.Contains(text.String(), "\nnext: ") {
			bad("what is printed: %s", text.String())
		}
	}
}

func typed(hint string, bad complain) {
	words := strings.Fields(hint)
	if len(words) < 2 || words[0] != "sgpatch" {
		return
	}
	c := lookup(words[1])
	if c == nil {
		bad("there is no command as in %q", hint)
	} else if _, err := parse(c, words[2:]); err != nil {
		bad("%q cannot be typed: %v", hint, err)
	}
}

// holdWayOut: who follows the hints does not go in a circle. Where neither
// apply nor revert can be done, the last word is how to get the published file.
func (f *fixture) holdWayOut(o outcome, bad complain) {
	a, r := o.apply.plain, o.named.plain
	if a.Exit == exitOK || r.Exit == exitOK {
		return
	}
	if hints := a.Hint + r.Hint; !strings.Contains(hints, "pip install") && !strings.Contains(hints, "by hand") && !strings.Contains(hints, "--root DIR") {
		bad("no way out: apply says %q, revert says %q", a.Hint, r.Hint)
	}
}

// stateIn is the state of the set two in a report.
func stateIn(r *Report) string {
	for _, s := range r.Sets {
		if s.ID == "two" {
			return s.State
		}
	}
	return ""
}

// codes lists the findings of a severity, "" for all, each once.
func codes(r *Report, severity string) string {
	var all []string
	for _, x := range r.Findings {
		if severity == "" || x.Severity == severity {
			all = append(all, x.Code)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}
