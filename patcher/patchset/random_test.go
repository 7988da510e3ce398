package patchset

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// change is one step of a random edit: what happens to a line.
type change byte

const (
	keep change = iota
	remove
	replace
	insert // before the line
)

// fileOf makes the File that changes lines as the changes say, as git would
// with that many lines of context. It is nil if nothing changes.
func fileOf(path string, lines [][]byte, changes []change, fresh func() []byte, context int) *File {
	all := script(lines, changes, fresh)
	f := &File{Path: path}
	old, now := 1, 1
	for i := 0; i < len(all); {
		from, to := window(all, i, context)
		if from < 0 {
			break
		}
		for ; i < from; i++ { // unchanged
			old++
			now++
		}
		h := Hunk{OldLine: old, NewLine: now, Lines: all[from:to]}
		h.OldCount, h.NewCount = len(h.Old()), len(h.New())
		f.Hunks = append(f.Hunks, h)
		old, now, i = old+h.OldCount, now+h.NewCount, to
	}
	if f.Hunks == nil {
		return nil
	}
	return f
}

// script is the whole text as one hunk.
func script(lines [][]byte, changes []change, fresh func() []byte) []Line {
	var out []Line
	for i, l := range lines {
		c := keep
		if i < len(changes) {
			c = changes[i]
		}
		if c == insert {
			out = append(out, Line{'+', fresh()})
		}
		if c == keep || c == insert {
			out = append(out, Line{' ', l})
			continue
		}
		out = append(out, Line{'-', l})
		if c == replace {
			text := fresh()
			if !terminated(l) {
				text = bytes.TrimSuffix(text, []byte{'\n'})
			}
			out = append(out, Line{'+', text})
		}
	}
	return out
}

// window returns the next hunk at or behind i, with context; -1 if none.
func window(all []Line, i, context int) (from, to int) {
	first := slices.IndexFunc(all[i:], func(l Line) bool { return l.Op != ' ' })
	if first < 0 {
		return -1, -1
	}
	from = max(i, i+first-context)
	last := i + first
	for k := last; k < len(all) && k <= last+2*context+1; k++ {
		if all[k].Op != ' ' {
			last = k
		}
	}
	return from, min(len(all), last+context+1)
}

func splitLines(text []byte) [][]byte { return slices.Collect(bytes.Lines(text)) }

// TestLikeGitAndPatch changes random texts by random hunks, moved by lines that
// were not there, and compares with git apply and GNU patch without fuzz. Lines
// are unique, so that all three must find the same place.
func TestLikeGitAndPatch(t *testing.T) {
	for _, tool := range []string{"git", "patch"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	serial := 0
	fresh := func() []byte { serial++; return fmt.Appendf(nil, "line %d\n", serial) }
	for range 60 {
		var text []byte
		for range 5 + r.IntN(60) {
			text = append(text, fresh()...)
		}
		if r.IntN(3) == 0 {
			text = bytes.TrimSuffix(text, []byte{'\n'})
		}
		lines := splitLines(text)
		changes := make([]change, len(lines))
		for i := range changes {
			if r.IntN(6) == 0 {
				changes[i] = change(r.IntN(4))
			}
		}
		f := fileOf("m.py", lines, changes, fresh, 1+r.IntN(3))
		if f == nil {
			continue
		}
		if r.IntN(2) == 0 && f.Hunks[0].OldLine > 3 {
			text = slices.Concat([]byte("moved\nby\nlines\n"), text)
		}
		compareTools(t, *f, text)
	}
}

func compareTools(t *testing.T, f File, text []byte) {
	t.Helper()
	patch := Print([]File{f})
	parsed := parseOne(t, string(patch))
	have, err := parsed.Apply(text)
	if err != nil {
		t.Fatalf("%v\n%s\n%q", err, patch, text)
	}
	for _, tool := range [][]string{{"git", "apply", "-p1"}, {"patch", "-s", "-p1", "-F0"}} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "m.py"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(tool[0], tool[1:]...)
		cmd.Dir, cmd.Stdin = dir, bytes.NewReader(patch)
		// A repository around the directory would change what git apply does.
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s\n%s\n%q", tool, err, out, patch, text)
		}
		if want := readFile(t, filepath.Join(dir, "m.py")); !bytes.Equal(have, want) {
			t.Fatalf("%v made\n%s\nwe made\n%s\nof\n%s", tool, want, have, patch)
		}
	}
}
