package patchset

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the .err files in testdata")

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// parseOne parses a diff of one file.
func parseOne(t testing.TB, text string) File {
	t.Helper()
	files, err := Parse("x.diff", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 {
		t.Fatalf("%d files", len(files))
	}
	return files[0]
}

// TestTriplets applies NAME.patch to NAME.src: the result is NAME.out, and the
// reversed patch leads back; or it is refused as NAME.err says.
func TestTriplets(t *testing.T) {
	sources, _ := filepath.Glob("testdata/*.src")
	if len(sources) < 30 {
		t.Fatalf("only %d cases", len(sources))
	}
	for _, src := range sources {
		name := strings.TrimSuffix(src, ".src")
		t.Run(filepath.Base(name), func(t *testing.T) { triplet(t, name) })
	}
}

func triplet(t *testing.T, name string) {
	src, patch := readFile(t, name+".src"), readFile(t, name+".patch")
	f := parseOne(t, string(patch))
	if !bytes.Equal(Print([]File{f}), patch) {
		t.Error("prints differently")
	}
	have, err := f.Apply(src)
	if _, e := os.Stat(name + ".err"); e == nil {
		wantRefusal(t, name+".err", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if want := readFile(t, name+".out"); !bytes.Equal(have, want) {
		t.Fatalf("have\n%q\nwant\n%q", have, want)
	}
	back, err := f.Reverse().Apply(have)
	if err != nil {
		t.Fatalf("reversed: %v", err)
	}
	if !bytes.Equal(back, src) {
		t.Fatalf("reversed\n%q\nwant\n%q", back, src)
	}
}

func wantRefusal(t *testing.T, golden string, err error) {
	var refused *PlaceError
	if !errors.As(err, &refused) {
		t.Fatalf("error %v, want a *PlaceError", err)
	}
	have := err.Error() + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := string(readFile(t, golden)); have != want {
		t.Errorf("have\n%s\nwant\n%s", have, want)
	}
}

func TestFit(t *testing.T) {
	src := readFile(t, "testdata/offset.src")
	f := parseOne(t, string(readFile(t, "testdata/offset.patch")))
	want := []HunkState{{Hunk: 1, Line: 9, Offset: 1}, {Hunk: 2, Line: 13, Offset: 1}}
	for i, s := range f.Fit(src) {
		if s.Hunk != want[i].Hunk || s.Line != want[i].Line || s.Offset != want[i].Offset || s.Reason != Fits {
			t.Errorf("hunk %d: %+v, want %+v", i+1, s, want[i])
		}
	}
	edits, err := f.Place(src)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range edits {
		if e.Hunk != i+1 || e.Line != want[i].Line || e.Offset != 1 {
			t.Errorf("edit %+v", e)
		}
	}
	if got := string(src[edits[0].Start:edits[0].End]); got != "        a = 1\n" || string(edits[0].New) != "        a = 10\n" {
		t.Errorf("the edit has context: %q becomes %q", got, edits[0].New)
	}
	if edits[1].Start != edits[1].End {
		t.Errorf("an insert replaces %q", src[edits[1].Start:edits[1].End])
	}
}

func TestHunkErrorsOneByOne(t *testing.T) {
	f := parseOne(t, string(readFile(t, "testdata/many-failures.patch")))
	_, err := f.Place(readFile(t, "testdata/many-failures.src"))
	var all *PlaceError
	var first *HunkError
	if !errors.As(err, &all) || !errors.As(err, &first) || first != all.Hunks[0] {
		t.Fatalf("%#v", err)
	}
	var reasons []Reason
	for _, h := range all.Hunks {
		reasons = append(reasons, h.Reason)
	}
	if want := []Reason{NotFound, Ambiguous, OutOfScope}; !slices.Equal(reasons, want) {
		t.Errorf("%v, want %v", reasons, want)
	}
	if h := all.Hunks[1]; h.Path != "m.py" || h.Hunk != 2 || h.Line != 3 || h.Scope != "A.f" || !slices.Equal(h.At, []int{3, 7}) {
		t.Errorf("%+v", h)
	}
}

func TestSplice(t *testing.T) {
	text := []byte("a\nb\nc\nd\n")
	ins := func(at int, s string) Edit { return Edit{Start: at, End: at, New: []byte(s)} }
	sub := func(from, to int, s string) Edit { return Edit{Start: from, End: to, New: []byte(s)} }
	for _, c := range []struct {
		name  string
		edits []Edit
		want  string // "" is a clash
	}{
		{"none", nil, "a\nb\nc\nd\n"},
		{"any order", []Edit{sub(4, 6, "C\n"), sub(0, 2, "A\n")}, "A\nb\nC\nd\n"},
		{"insert before what is replaced", []Edit{sub(2, 4, "B\n"), ins(2, "+\n")}, "a\n+\nB\nc\nd\n"},
		{"insert behind what is replaced", []Edit{ins(4, "+\n"), sub(2, 4, "B\n")}, "a\nB\n+\nc\nd\n"},
		{"neighbours", []Edit{sub(2, 4, "B\n"), sub(4, 6, "C\n")}, "a\nB\nC\nd\n"},
		{"overlap", []Edit{sub(2, 6, "B\n"), sub(4, 8, "C\n")}, ""},
		{"insert into what is replaced", []Edit{sub(2, 6, "B\n"), ins(4, "+\n")}, ""},
		{"the same", []Edit{sub(2, 4, "B\n"), sub(2, 4, "B\n")}, ""},
		{"two inserts at one point", []Edit{ins(4, "1\n"), ins(4, "2\n")}, ""},
		{"behind an end without newline", []Edit{sub(6, 8, "D"), ins(8, "e\n")}, ""},
	} {
		have, err := Splice(text, c.edits)
		var clash *ClashError
		if c.want == "" != errors.As(err, &clash) || string(have) != c.want {
			t.Errorf("%s: %q, %v", c.name, have, err)
		}
	}
}

// TestSpliceTwoSets lets two sets change neighbouring lines of one file.
func TestSpliceTwoSets(t *testing.T) {
	text := []byte("a\nb\nc\nd\n")
	one := parseOne(t, "--- a/m\n+++ b/m\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n")
	two := parseOne(t, "--- a/m\n+++ b/m\n@@ -2,3 +2,3 @@\n b\n-c\n+C\n d\n")
	x, err1 := one.Place(text)
	y, err2 := two.Place(text)
	have, err := Splice(text, append(y, x...))
	if err := errors.Join(err1, err2, err); err != nil || string(have) != "a\nB\nC\nd\n" {
		t.Errorf("%q, %v", have, err)
	}
	_, err = Splice(text, append(x, x...))
	var clash *ClashError
	if !errors.As(err, &clash) || clash.I != 0 || clash.J != 1 {
		t.Errorf("%v", err)
	}
}

// TestInsertsThatMeet: two sets append to one file, and no order is right.
func TestInsertsThatMeet(t *testing.T) {
	text := []byte("x = 1\na = 1\n")
	one := parseOne(t, head+"@@ -2 +2,2 @@\n a = 1\n+b = 2\n")
	two := parseOne(t, head+"@@ -2 +2,2 @@\n a = 1\n+c = 3\n")
	x, err1 := one.Place(text)
	y, err2 := two.Place(text)
	have, err := Splice(text, slices.Concat(x, y))
	var clash *ClashError
	if err1 != nil || err2 != nil || !errors.As(err, &clash) || have != nil {
		t.Errorf("%q, %v, %v, %v", have, err1, err2, err)
	}
}

// TestShortContext: a hunk whose context is cut short at an end of the file is
// refused elsewhere wherever git apply and patch -F0 both refuse it.
func TestShortContext(t *testing.T) {
	const (
		atStart  = "@@ -1,2 +1,3 @@\n+new\n a\n b\n"
		inStart  = "@@ -1,3 +1,4 @@\n a\n+new\n b\n c\n"
		atEnd    = "@@ -4,2 +4,3 @@\n d\n e\n+new\n"
		even     = "@@ -1,2 +1,3 @@\n a\n+NEW\n b\n"
		inEnd    = "@@ -3,3 +3,4 @@\n c\n d\n+new\n e\n"
		inEndToo = "@@ -3,3 +4,4 @@\n c\n d\n+new\n e\n"
		whole    = "@@ -1,5 +1,6 @@\n a\n b\n c\n d\n+new\n e\n"
	)
	for _, c := range []struct{ hunk, text, want string }{
		{atStart, "a\nb\nc\n", "new\na\nb\nc\n"},
		{atStart, "x\na\nb\nc\n", ""},
		{inStart, "a\nb\nc\n", "a\nnew\nb\nc\n"},
		{inStart, "x\na\nb\nc\n", ""},
		{atEnd, "x\nd\ne\n", "x\nd\ne\nnew\n"},
		{atEnd, "d\ne\n", "d\ne\nnew\n"},
		{atEnd, "c\nd\ne\nx\n", ""},
		{inEnd, "c\nd\ne\nx\n", "c\nd\nnew\ne\nx\n"}, // git takes it
		{whole, "x\na\nb\nc\nd\ne\n", "x\na\nb\nc\nd\nnew\ne\n"},
		{whole, "a\nb\nc\nd\ne\nx\n", "a\nb\nc\nd\nnew\ne\nx\n"},
		{whole, "x\na\nb\nc\nd\ne\nx\n", ""},
		// patch takes the first hunk here and git the second, and neither both
		{even + inEndToo, "x\na\nb\nc\nd\ne\nx\n", ""},
		{even + inEndToo, "a\nb\nc\nd\ne\nx\n", "a\nNEW\nb\nc\nd\nnew\ne\nx\n"},
		{even + inEndToo, "x\na\nb\nc\nd\ne\n", "x\na\nNEW\nb\nc\nd\nnew\ne\n"},
	} {
		have, err := parseOne(t, "--- a/m\n+++ b/m\n"+c.hunk).Apply([]byte(c.text))
		var refused *HunkError
		if string(have) != c.want || errors.As(err, &refused) != (c.want == "") || refused != nil && refused.Reason != OffEdge {
			t.Errorf("%q in %q: %q, %v", c.hunk, c.text, have, err)
		}
	}
}

// TestLineEndsUnseen: a file of CRLF lines that may have been made one by the
// very change that is to be taken back.
func TestLineEndsUnseen(t *testing.T) {
	f := parseOne(t, "--- a/m\n+++ b/m\n@@ -2 +2 @@\n-b\n+c\n\\ No newline at end of file\n")
	have, err := f.Apply([]byte("a\r\nb\n"))
	if err != nil || string(have) != "a\r\nc" {
		t.Fatalf("%q, %v", have, err)
	}
	var refused *PlaceError
	if back, err := f.Reverse().Apply(have); !errors.As(err, &refused) {
		t.Errorf("%q, %v", back, err)
	}
}
