package main

import (
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the tables in docs/states.md")

// outcome is what every command says about one world, and what it did to it.
// Looking and dry runs have changed nothing, or the test has failed already.
type outcome struct {
	world
	status, verify, fast *Report
	apply, revert, named act // named is revert with the set's name
}

// act is a command that changes things.
type act struct {
	dry, plain *Report
	changed    []string // on the disk
	tree       contents // below the root, afterwards
	verify     *Report  // what verify says then, nil if it was refused
	again      *Report  // and the same command once more; nil is not tried
	back       contents // what a revert leaves, after an apply
}

// TestStates puts an install into every state of docs/states.md, runs every
// command on it, and holds what happens against the laws in states_laws_test.go;
// the tables are written from what was seen. verify and status have no dry run:
// they are one.
func TestStates(t *testing.T) {
	isolate(t)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // two thousand short commands in one process
	listed, unlisted := newFixture(t, true), newFixture(t, false)
	for _, command := range []string{"verify", "status"} {
		if r := listed.do(t, listed.root, command, "-n"); r.Exit != exitUsage {
			t.Errorf("%s -n: exit %d", command, r.Exit)
		}
	}
	page := newPage()
	seen := 0
	run := func(f *fixture, all []world) []outcome {
		var out []outcome
		for _, w := range all {
			o := f.try(t, w)
			f.hold(t, o)
			out = append(out, o)
			seen++
		}
		return out
	}
	page.single(singles, run(listed, worldsOf(singles)))
	page.unlisted(singles, run(unlisted, worldsOf(singles)))
	page.entries(run(listed, entryWorlds()))
	for _, r := range recordStates {
		page.pairs(r, run(listed, pairWorlds(r)))
	}
	t.Logf("%d states", seen)
	page.compare(t, "../../docs/states.md")
}

// isolate keeps the host's shell profiles, variables and history out.
func isolate(t *testing.T) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, name := range []string{"SGLANG_TWO", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"} {
		t.Setenv(name, "") // puts back what it was
		os.Unsetenv(name)
	}
	t.Setenv("SGPATCH_STATE_DIR", filepath.Join(home, "state"))
	python, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(strings.TrimSpace(string(python)))) // the interpreter itself, without a wrapper that picks one
}

// named is a single state under the name that the table has for it.
type named struct {
	name string
	world
}

// singles are the twelve states an operator would name.
var singles = []named{
	{"pristine", world{files: [2]fileState{pristine, pristine}, records: never}},
	{"held", world{files: [2]fileState{held, held}, records: kept}},
	{"partial", world{files: [2]fileState{held, pristine}, records: kept}},
	{"edited elsewhere", world{files: [2]fileState{elsewhere, held}, records: kept}},
	{"edited in a hunk", world{files: [2]fileState{inHunk, held}, records: kept}},
	{"other release", world{files: [2]fileState{other, other}, records: kept}},
	{"file missing", world{files: [2]fileState{missing, held}, records: kept}},
	{"directory missing", world{noDir: true, files: [2]fileState{missing, missing}, records: kept}},
	{"receipt missing", world{files: [2]fileState{held, held}, records: noReceipt}},
	{"receipt of another machine", world{files: [2]fileState{held, held}, records: strange}},
	{"image layer without `.sgpatch`", world{files: [2]fileState{held, held}, records: layer}},
	{"`.sgpatch` without files", world{files: [2]fileState{pristine, pristine}, records: alone}},
}

func worldsOf(all []named) []world {
	var out []world
	for _, n := range all {
		out = append(out, n.world)
	}
	return out
}

func entryWorlds() []world {
	var out []world
	for _, r := range []recordState{kept, noReceipt} {
		for _, edit := range slices.Sorted(maps.Keys(entryEdits)) {
			for _, s := range []fileState{held, pristine} {
				out = append(out, world{files: [2]fileState{s, s}, records: r, entry: edit})
			}
		}
	}
	return out
}

// pairWorlds are the pairs of file states beside one state of the records, and no
// directory at all. Beside records as apply left them every pair is there in both
// orders; beside others in one, now this and now that.
func pairWorlds(r recordState) []world {
	out := []world{{noDir: true, files: [2]fileState{missing, missing}, records: r}}
	for i, a := range fileStates {
		for j, b := range fileStates {
			if r == kept || i == j || (i < j) == ((i+j)%2 == 0) {
				out = append(out, world{files: [2]fileState{a, b}, records: r})
			}
		}
	}
	return out
}

// try runs every command on a world.
func (f *fixture) try(t *testing.T, w world) outcome {
	t.Helper()
	f.lay(t, w)
	was := f.disk(t)
	o := outcome{world: w}
	for _, l := range []struct {
		into **Report
		line string
	}{
		{&o.status, "status two"}, {&o.verify, "verify two"}, {&o.fast, "verify two --fast"},
		{&o.apply.dry, "apply two -n"}, {&o.revert.dry, "revert -n"}, {&o.named.dry, "revert two -n"},
	} {
		if l.into == &o.named.dry && w.sameByName() {
			continue
		}
		*l.into = f.do(t, f.root, strings.Fields(l.line)...)
	}
	if d := differ(was, f.disk(t)); d != nil {
		t.Errorf("%s: looking changed %v", w, d)
	}
	f.act(t, w, &o.apply, "apply", "two")
	f.act(t, w, &o.revert, "revert")
	if w.sameByName() {
		o.named = o.revert
	} else {
		f.act(t, w, &o.named, "revert", "two")
	}
	return o
}

// sameByName says that a revert with the set's name can be no other than one
// without: a receipt has the set. Beside records as apply left them it is tried.
func (w world) sameByName() bool { return w.records == strange || w.records == alone }

// act runs a command for good, and what would come after it.
func (f *fixture) act(t *testing.T, w world, a *act, args ...string) {
	t.Helper()
	before := f.disk(t)
	a.plain = f.do(t, f.root, args...)
	a.changed, a.tree = differ(before, f.disk(t)), pickUp(t, f.root)
	if a.plain.Exit != exitOK {
		return
	}
	a.verify = f.do(t, f.root, "verify", "two")
	if w.records == kept {
		a.again = f.do(t, f.root, args...)
	}
	if args[0] == "apply" {
		if r := f.do(t, f.root, "revert"); r.Exit != exitOK {
			t.Errorf("%s: revert after apply: %s", w, r.Error)
		}
		a.back = pickUp(t, f.root)
	}
	if len(a.changed) > 0 || a.back != nil {
		f.lay(t, w)
	}
}
