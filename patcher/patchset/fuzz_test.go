package patchset

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func addFiles(f *testing.F, pattern string) {
	names, _ := filepath.Glob(pattern)
	for _, name := range names {
		f.Add(readFile(f, name))
	}
}

// FuzzParse: what is accepted prints as itself, reversed it is accepted too,
// and what is refused is refused with a line of the text.
func FuzzParse(f *testing.F) {
	addFiles(f, "testdata/*.patch")
	f.Fuzz(func(t *testing.T, text []byte) {
		files, err := Parse("x.diff", text)
		if err != nil {
			var d *DataError
			if !errors.As(err, &d) || d.Line > bytes.Count(text, []byte{'\n'})+1 {
				t.Fatalf("%#v", err)
			}
			return
		}
		if !bytes.Equal(Print(files), text) {
			t.Fatalf("prints as %q", Print(files))
		}
		for i := range files {
			files[i] = files[i].Reverse()
		}
		again, err := Parse("x.diff", Print(files))
		if err != nil || !bytes.Equal(Print(again), Print(files)) {
			t.Fatalf("reversed: %v\n%s", err, Print(files))
		}
	})
}

// FuzzPlace: any diff meets any text. Nothing panics, Fit and Place agree, and
// what was applied can be taken back, or its reverse is refused for a reason
// that the text gives: the new lines are there twice.
func FuzzPlace(f *testing.F) {
	sources, _ := filepath.Glob("testdata/*.src")
	for _, src := range sources {
		f.Add(readFile(f, src), readFile(f, strings.TrimSuffix(src, ".src")+".patch"))
	}
	f.Fuzz(func(t *testing.T, text, patch []byte) {
		files, err := Parse("x.diff", patch)
		if err != nil {
			return
		}
		for _, file := range files {
			edits, err := file.Place(text)
			for i, s := range file.Fit(text) {
				if err == nil && (s.Reason != Fits || s.Line != edits[i].Line || s.Offset != edits[i].Offset) {
					t.Fatalf("%+v but %+v", s, edits[i])
				}
			}
			if err == nil {
				thereAndBack(t, file, text)
			}
		}
	})
}

func thereAndBack(t *testing.T, f File, text []byte) {
	t.Helper()
	patched, err := f.Apply(text)
	if err != nil {
		var clash *ClashError
		if !errors.As(err, &clash) {
			t.Fatal(err)
		}
		return
	}
	back, err := f.Reverse().Apply(patched)
	var refused *PlaceError
	var clash *ClashError
	switch {
	case err == nil && !bytes.Equal(back, text):
		t.Fatalf("%q\nbecame\n%q\nand then\n%q\nby\n%s", text, patched, back, Print([]File{f}))
	case errors.As(err, &refused):
		for _, h := range refused.Hunks {
			if h.Reason != Ambiguous && !(h.Reason == NotFound && bytes.Contains(text, []byte("\r\n"))) {
				t.Fatalf("reversed: %v\n%q\nbecame\n%q\nby\n%s", h, text, patched, Print([]File{f}))
			}
		}
	case err != nil && !errors.As(err, &clash):
		t.Fatal(err)
	}
}

// FuzzApplyRevert makes a diff for the text out of the fuzzer's bytes, so that
// nearly every input is applied: it must give what was meant, and lead back.
func FuzzApplyRevert(f *testing.F) {
	sources, _ := filepath.Glob("testdata/*.src")
	for i, src := range sources {
		f.Add(readFile(f, src), []byte{0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 2, byte(i)}, byte(i), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, text, steps []byte, context byte, python bool) {
		path := "m.txt"
		if python {
			path = "m.py"
		}
		changes := make([]change, len(steps))
		for i, s := range steps {
			changes[i] = change(s % 4)
		}
		serial := 0
		fresh := func() []byte { serial++; return fmt.Appendf(nil, "def new_%d(): pass\n", serial) }
		made := fileOf(path, splitLines(text), changes, fresh, int(context%5))
		if made == nil {
			return
		}
		files, err := Parse("x.diff", Print([]File{*made}))
		if err != nil {
			return // a byte order mark or a lone CR in a hunk, a hunk without old lines
		}
		patched, err := files[0].Apply(text)
		if err != nil {
			return
		}
		if want := joinSide(script(splitLines(text), changes, refresh()), '-'); !bytes.Equal(patched, want) && !bytes.Contains(text, []byte{'\r'}) {
			t.Fatalf("%q became\n%q, want\n%q\nby\n%s", text, patched, want, Print(files))
		}
		thereAndBack(t, files[0], text)
	})
}

// refresh makes the new lines of FuzzApplyRevert once more.
func refresh() func() []byte {
	serial := 0
	return func() []byte { serial++; return fmt.Appendf(nil, "def new_%d(): pass\n", serial) }
}

func joinSide(lines []Line, without byte) []byte {
	return slices.Concat(Hunk{Lines: lines}.without(without)...)
}

// FuzzScope: nothing panics, and the scopes are nested and in the text.
func FuzzScope(f *testing.F) {
	addFiles(f, "testdata/*.src")
	f.Add([]byte("x = f'{a['b']!r:{w}}' f\"{'#'}{{\" f'{'''\n'''}'\n"))
	f.Add([]byte("@a\n@b(\n1)\nasync def \\\n f(): x = '\\\\'\n\tclass A: pass\r\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := bytes.Count(text, []byte{'\n'}) + 1
		previous := 1
		for _, s := range Scopes(text) {
			if s.First < previous || s.Last < s.First || s.Tail < s.Last || s.Tail > lines || s.Name == "" {
				t.Fatalf("%+v in %d lines", s, lines)
			}
			previous = s.First
			if outer, _, nested := strings.Cut(s.Name, "."); nested && !indexScopes(text, []Hunk{{Scope: outer}}).within(outer, s.First, s.Last) {
				t.Fatalf("%+v is not in %s", s, outer)
			}
		}
	})
}

// FuzzManifest: nothing panics, and what is accepted keeps the promises that
// callers rely on.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(goodManifest))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := LoadNamed(fstest.MapFS{"manifest.toml": {Data: text}}, "x")
		if err != nil {
			if s.ID != "" || !strings.HasPrefix(err.Error(), "x/manifest.toml") {
				t.Fatalf("%v", err)
			}
			return
		}
		if s.ID != "x" || s.Version == "" || len(s.Env) == 0 {
			t.Fatalf("%+v", s)
		}
		for _, e := range s.Env {
			if !isEnvName(e.Name) || hijacks(e.Name) || strings.Contains(e.Value, "\x00") {
				t.Fatalf("%+v", e)
			}
		}
	})
}
