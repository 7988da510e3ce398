package patchset

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// largeCase makes a text with n functions and a diff with a hunk in each.
func largeCase(n int) (text, patch []byte) {
	patch = []byte(head)
	for i := range n {
		text = fmt.Appendf(text, "def f%d():\n    begin()\n    work(%d)\n    end()\n\n", i, i)
		patch = fmt.Appendf(patch, "@@ -%d,3 +%d,4 @@ f%d\n def f%d():\n     begin()\n+    more()\n     work(%d)\n", 5*i+1, 6*i+1, i, i, i)
	}
	return text, patch
}

func BenchmarkApply10000Hunks(b *testing.B) {
	text, patch := largeCase(10_000)
	f := parseOne(b, string(patch))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := f.Apply(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse10000Hunks(b *testing.B) {
	_, patch := largeCase(10_000)
	b.SetBytes(int64(len(patch)))
	for b.Loop() {
		if _, err := Parse("x.diff", patch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApplySmall is the common case: a module of 500 lines, two hunks.
func BenchmarkApplySmall(b *testing.B) {
	text, patch := largeCase(100)
	f := parseOne(b, string(patch))
	f.Hunks = f.Hunks[49:51]
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := f.Apply(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScopes(b *testing.B) {
	text, _ := largeCase(1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Scopes(text)
	}
}

// TestWorstCases would run for hours if anything in it were quadratic: 10,000
// hunks, each of whose lines is everywhere in the text, and Python made to
// nest.
func TestWorstCases(t *testing.T) {
	same := bytes.Repeat([]byte("x\n"), 100_000)
	var patch strings.Builder
	patch.WriteString("--- a/m.txt\n+++ b/m.txt\n")
	line, delta := 1, 0
	for i := range 10_000 {
		n := 1 + i%100
		fmt.Fprintf(&patch, "@@ -%s +%s @@\n%s+y\n", printRange(line, n), printRange(line+delta, n+1), strings.Repeat(" x\n", n))
		line += n
		delta++
	}
	f := parseOne(t, patch.String())
	for i, s := range f.Fit(same) {
		if s.Reason != Ambiguous || len(s.At) != mostPlaces {
			t.Fatalf("hunk %d: %+v", i, s)
		}
	}
	for _, text := range []string{
		"x = " + strings.Repeat("f'{", 500_000),
		"x = " + strings.Repeat("f'{x:{", 500_000),
		strings.Repeat("(", 1_000_000),
		strings.Repeat("@a\n", 500_000),
		strings.Repeat("def f(): pass\n", 100_000),
		strings.Repeat("\\\n", 500_000),
	} {
		Scopes([]byte(text))
	}
	var deep strings.Builder
	for i := range 2000 {
		deep.WriteString(strings.Repeat(" ", i) + "class A:\n")
	}
	if n := len(Scopes([]byte(deep.String()))); n != 2000 {
		t.Errorf("%d scopes", n)
	}
}

func printRange(line, count int) string { return string(appendRange(nil, line, count)) }
