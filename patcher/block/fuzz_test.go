package block

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// typed demands that an error is one of the three that Set may return.
func typed(t *testing.T, err error) {
	t.Helper()
	var entry *EntryError
	var damaged *DamagedError
	var source *SourceError
	if !errors.As(err, &entry) && !errors.As(err, &damaged) && !errors.As(err, &source) {
		t.Fatalf("%T: %v", err, err)
	}
}

func FuzzBlockLaws(f *testing.F) {
	add := func(text string) { f.Add([]byte(text), gate, "1", rootA, rootB, false) }
	for _, text := range foreign {
		add(text)
	}
	for _, marked := range positions {
		add(strings.Replace(marked, "@@", "", 1))
	}
	for _, text := range unfit {
		add(text)
	}
	f.Add([]byte("'D'"), "_", "\xff\"\\\né😀", "/coding=x", "/>>> sgpatch >>>", true)
	f.Fuzz(func(t *testing.T, text []byte, name, value, a, b string, made bool) {
		want := Block{Made: made, Entries: []Entry{{name, value, []string{b, a, b}}, {"B", "2", []string{a}}}}
		with, err := Set(text, want)
		if err != nil {
			typed(t, err)
			return
		}
		if want, err = want.normal(); err != nil {
			t.Fatal("Set took what is not lawful:", err)
		}
		if diff := cmp.Diff(want, get(t, string(with))); diff != "" {
			t.Fatalf("Get(Set(t, b)) is not b: %s", diff)
		}
		if again := set(t, string(with), want); again != string(with) {
			t.Fatalf("a second Set changed it: %q", again)
		}
		if old := get(t, string(text)); len(old.Entries) == 0 {
			lawsOfInsertion(t, text, with, want)
		}
	})
}

// lawsOfInsertion: with is text, which had no block, with the block b.
func lawsOfInsertion(t *testing.T, text, with []byte, b Block) {
	if back := set(t, string(with), Block{}); back != string(text) {
		t.Fatalf("taken out: %q, want %q", back, text)
	}
	pos, err := Position(text)
	if err != nil || !bytes.HasPrefix(with, text[:pos]) || !bytes.HasSuffix(with, text[pos:]) {
		t.Fatalf("not at %d: %q", pos, with)
	}
	ours := with[pos : len(with)-(len(text)-pos)]
	if bytes.ContainsFunc(ours, func(r rune) bool { return r >= 0x7f || r < ' ' && r != '\n' && r != '\r' }) {
		t.Fatalf("not printable ASCII: %q", ours)
	}
	if now, err := Position(with); err != nil || len(bytes.TrimLeft(ours, "\r\n"))+now != pos+len(ours) {
		t.Fatalf("the place has moved: %d, %v: %q", now, err, with)
	}
	b.Entries = b.Entries[:1]
	if direct, replaced := set(t, string(text), b), set(t, string(with), b); direct != replaced {
		t.Fatalf("replaced: %q, set at once: %q", replaced, direct)
	}
	if names := []string{b.Entries[0].Name}; !cmp.Equal(hands(Hand(text, names)), hands(Hand(with, names))) {
		t.Fatalf("made by hand: %v, then %v", Hand(text, names), Hand(with, names))
	}
}

func hands(lines []Line) []string {
	var out []string
	for _, l := range lines {
		out = append(out, l.Name+" "+l.Text)
	}
	return out
}

func FuzzGet(f *testing.F) {
	for _, text := range foreign {
		f.Add([]byte(set(f, text, one(rootA))))
	}
	f.Add([]byte(set(f, "", Block{Made: true, Entries: []Entry{{"A", "\xff\n", []string{"/a", "/b"}}, {"B", "", []string{"/b"}}}})))
	f.Add([]byte("0\n" + set(f, "", one(rootA)))) // below code
	f.Fuzz(func(t *testing.T, text []byte) {
		Position(text)
		b, err := Get(text)
		if err != nil {
			if Empty(text) {
				t.Fatal("damaged, and yet empty")
			}
			typed(t, err)
			return
		}
		if again := set(t, string(text), b); len(b.Entries) > 0 && again != string(text) {
			if top := set(t, set(t, string(text), Block{}), b); again != top || set(t, top, b) != top {
				t.Fatalf("Set would not have written this, and does not bring it to the top: %q", text)
			}
		}
		if back := set(t, string(text), Block{}); Empty(text) != (back == "") || get(t, back).Entries != nil {
			t.Fatalf("taken out: %q", back)
		}
	})
}

func FuzzHand(f *testing.F) {
	for _, c := range handCases {
		f.Add([]byte(c.text))
	}
	for _, c := range shellCases {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		names := []string{"N", gate, "NCCL_PROTO"}
		for _, l := range append(Hand(text, names), Shell(text, names)...) {
			if l.Number < 1 || l.Number > 1+bytes.Count(text, []byte("\n"))+bytes.Count(text, []byte("\r")) || !strings.Contains(l.Text, l.Name) && !strings.ContainsAny(l.Text, "\\\"'") {
				t.Fatalf("%+v", l)
			}
		}
	})
}
