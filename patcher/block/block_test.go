package block

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	gate  = "SGLANG_FORCE_CUSTOM_AR_PCIE"
	rootA = "/opt/venv/lib/python3.12/site-packages"
	rootB = "/srv/b"
)

func one(root string) Block {
	return Block{Entries: []Entry{{gate, "1", []string{root}}}}
}

func set(t testing.TB, text string, b Block) string {
	t.Helper()
	out, err := Set([]byte(text), b)
	if err != nil {
		t.Fatalf("Set(%q): %v", text, err)
	}
	return string(out)
}

func get(t testing.TB, text string) Block {
	t.Helper()
	b, err := Get([]byte(text))
	if err != nil {
		t.Fatalf("Get(%q): %v", text, err)
	}
	return b
}

func TestFormat(t *testing.T) {
	b := Block{Entries: []Entry{
		{"NCCL_PROTO", "LL\xff\"é😀", []string{rootB}},
		{gate, "1", []string{rootB, rootA}},
	}}
	want := `# >>> sgpatch >>> written by sgpatch; to take it out: sgpatch revert
# root 1 "/opt/venv/lib/python3.12/site-packages"
# root 2 "/srv/b"
try:
    __import__("os").environ.setdefault("NCCL_PROTO", "LL\udcff\"\u00e9\U0001f600")  # roots 2
except Exception:
    pass
try:
    __import__("os").environ.setdefault("SGLANG_FORCE_CUSTOM_AR_PCIE", "1")  # roots 1 2
except Exception:
    pass
pass  # ends the try
# <<< sgpatch <<<
`
	if diff := cmp.Diff(want, set(t, "", b)); diff != "" {
		t.Error(diff)
	}
}

// bodies of sitecustomize.py files that belong to somebody: those of the
// acceptance case c12, the one Ubuntu ships, and odd ones.
var foreign = map[string]string{
	"no-newline":   "import os\nif True:\n    os.environ[\"CASE_FOREIGN\"] = \"ran\"",
	"latin1":       "# -*- coding: latin-1 -*-\nimport os\nos.environ[\"CASE_FOREIGN\"] = \"ran\"; NAME = \"caf\351\"\n",
	"future":       "\"\"\"Site hooks.\"\"\"\nfrom __future__ import annotations\nimport os\nos.environ[\"CASE_FOREIGN\"] = \"ran\"\n",
	"raises":       "import os\nos.environ[\"CASE_FOREIGN\"] = \"ran\"\nraise RuntimeError(\"agent not reachable\")\n",
	"crlf":         "import os\r\nos.environ[\"CASE_FOREIGN\"] = \"ran\"\r\n",
	"empty":        "",
	"syntax-error": "import os\nos.environ[\"CASE_FOREIGN\"] = \"ran\"\nif os.environ[\"CASE_FOREIGN\"] == \"ran\":\n    pass\nelse:\n    x = \"\"\"\n",
	"apport": `# install the apport exception handler if available
try:
    import apport_python_hook
except ImportError:
    pass
else:
    apport_python_hook.install()
`,
	"bom":            "\xef\xbb\xbfimport os\n",
	"bom only":       "\xef\xbb\xbf",
	"doc only":       `"""Doc."""`,
	"doc only, crlf": "\"\"\"Two\r\nlines.\"\"\"",
	"shebang only":   "#!/usr/bin/python3",
	"future only":    "from __future__ import annotations  # all",
	"word":           "# sgpatch is not used here; see > sgpatch > docs\nx = 1 << 2 >> 1\n",
	"spaces":         " \t\f\n\n",
}

func TestForeign(t *testing.T) {
	for name, text := range foreign {
		t.Run(name, func(t *testing.T) {
			b := one(rootA)
			with := set(t, text, b)
			if diff := cmp.Diff(b, get(t, with)); diff != "" {
				t.Error(diff)
			}
			if again := set(t, with, b); again != with {
				t.Errorf("a second Set changed it: %q", again)
			}
			if back := set(t, with, Block{}); back != text {
				t.Errorf("taken out: %q, want %q", back, text)
			}
			if crlf := strings.Contains(text, "\r\n"); crlf && strings.Count(with, "\n") != strings.Count(with, "\r\n") {
				t.Errorf("line ends are mixed: %q", with)
			}
			if Empty([]byte(with)) != (text == "") {
				t.Error("Empty is wrong")
			}
		})
	}
}

// TestReplace: the block is written where it stands, below what others have written
// there, unless that is code: it comes back to the top then.
func TestReplace(t *testing.T) {
	first := set(t, foreign["future"], one(rootA))
	b := Block{Made: true, Entries: []Entry{{"A", "", []string{rootA, rootB}}}}
	before, after, _ := strings.Cut(first, set(t, "", one(rootA)))
	for above, want := range map[string]string{
		"# theirs\n\n":   "# theirs\n\n" + before + "@" + after,
		"import early\n": "@import early\n" + before + after,
	} {
		got := set(t, above+first+"import late\n", b)
		if want = strings.Replace(want, "@", set(t, "", b), 1) + "import late\n"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if diff := cmp.Diff(b, get(t, got)); diff != "" {
			t.Error(diff)
		}
		if again := set(t, got, b); again != got {
			t.Errorf("a second Set changed it: %q", again)
		}
	}
}

// The line end that the block added stays if somebody has written below it.
func TestAddedLineEnd(t *testing.T) {
	with := set(t, `"""Doc."""`, one(rootA))
	if got := set(t, with, Block{}); got != `"""Doc."""` {
		t.Errorf("%q", got)
	}
	if got, want := set(t, with+"import os\n", Block{}), "\"\"\"Doc.\"\"\"\nimport os\n"; got != want {
		t.Errorf("%q", got)
	}
	alone := strings.TrimPrefix(with, "\"\"\"Doc.\"\"\"\n")
	if got := set(t, alone, Block{}); got != "" {
		t.Errorf("%q", got)
	}
}

func TestMade(t *testing.T) {
	b := one(rootA)
	b.Made = true
	text := set(t, "", b)
	got := get(t, text)
	if !got.Made || !Empty([]byte(text)) || Empty([]byte(text+"\n")) {
		t.Errorf("made: %v", got)
	}
	last := got.Without(rootA)
	if !last.Made || len(last.Entries) > 0 {
		t.Errorf("the last root is out: %v", last)
	}
	if set(t, text, last) != "" {
		t.Error("no entries, but a block")
	}
}

func TestDamaged(t *testing.T) {
	good := set(t, "import os\n", Block{Entries: []Entry{{"A", "1", []string{rootA, rootB}}, {"B", "2", []string{rootB}}}})
	edit := func(old, new string) string {
		if strings.Count(good, old) == 0 {
			t.Fatalf("no %q in the block", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	cases := []struct {
		name, text string
		line       int
	}{
		{"no closing marker", edit("# <<< sgpatch <<<\n", ""), 1},
		{"no opening marker", good[strings.Index(good, "\n")+1:], 12},
		{"doubled", good + good, 15},
		{"nested", edit("try:\n", good+"try:\n"), 4},
		{"closing marker doubled", good + "# <<< sgpatch <<<\n", 15},
		{"closing marker first", "# <<< sgpatch <<<\n" + good, 1},
		{"indented marker", edit("# <<<", " # <<<"), 13},
		{"trailing text", edit("sgpatch <<<\n", "sgpatch <<< \n"), 13},
		{"opening edited", edit("written by", "made by"), 1},
		{"opening cut", edit(" >>> written by sgpatch; to take it out: sgpatch revert", ""), 1},
		{"commented out", edit("# <<<", "## <<<"), 13},
		{"lower spacing", edit("# >>> sgpatch", "#>>>sgpatch"), 1},
		{"marker in code", "x = '# >>> sgpatch >>>'\n", 1},
		{"marker elsewhere", good + "y = 1  # <<< SGPATCH <<<\n", 15},
		{"conflict of git", "<<<<<<< sgpatch <<<\n", 1},
		{"value edited", edit(`"1")`, `"1" )`), 5},
		{"value not ASCII", edit(`"1")`, `"é")`), 5},
		{"value with a needless escape", edit(`"1")`, `"\x31")`), 5},
		{"name edited", edit(`"A"`, `"A-"`), 1},
		{"name doubled", edit(`"B"`, `"A"`), 1},
		{"entry commented out", edit("    __import__", "#   __import__"), 5},
		{"roots edited", edit("# roots 1 2", "# roots 2 1"), 5},
		{"no roots", edit("# roots 1 2", "# roots"), 2},
		{"unknown root", edit("# roots 1 2", "# roots 1 3"), 5},
		{"root not used", edit("# roots 1 2", "# roots 2"), 2},
		{"root relative", edit(`"/srv`, `"srv`), 1},
		{"root renumbered", edit("# root 2", "# root 3"), 3},
		{"roots not sorted", edit(`1 "/opt`, `1 "/zzz`), 2},
		{"line added", edit("except Exception:\n    pass\n", "except Exception:\n    pass\nprint()\n"), 8},
		{"blank line added", edit("try:", "\ntry:"), 4},
		{"line lost", edit("except Exception:\n    pass\n", ""), 6},
		{"no entries", "# >>> sgpatch >>> written by sgpatch; to take it out: sgpatch revert\n# <<< sgpatch <<<\n", 1},
		{"one line end is CRLF", edit("try:\n", "try:\r\n"), 4},
		{"lone carriage returns", strings.ReplaceAll(good, "\n", "\r"), 1},
		{"last line end lost", strings.TrimSuffix(good, "\nimport os\n"), 13},
		{"in a string", "x = '''\n" + good + "'''\n", 2},
		{"in a string that does not end", "x = '''\n" + good, 2},
		{"in brackets", "x = (\n" + good + ")\n", 2},
		{"after a continuation", "x = 1 + \\\n" + good, 2},
		{"second in a byte order mark", "\n\xef\xbb\xbf" + good, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b, err := Get([]byte(c.text))
			var damaged *DamagedError
			if !errors.As(err, &damaged) || damaged.Line != c.line || len(b.Entries) > 0 {
				t.Errorf("Get: %v, %v; want damage in line %d of\n%s", b, err, c.line, c.text)
			}
			if _, err := Set([]byte(c.text), Block{}); !errors.As(err, &damaged) {
				t.Errorf("Set: %v", err)
			}
			if Empty([]byte(c.text)) {
				t.Error("called empty")
			}
		})
	}
}

// Whatever single edit is made in a block: it is damage, or a block that Set
// would have written just so.
func TestEveryEdit(t *testing.T) {
	good := set(t, "", Block{Entries: []Entry{{"A", "\n\xff", []string{rootA, rootB}}, {"B", "2", []string{rootB}}}})
	check := func(text string) {
		b, err := Get([]byte(text))
		if err == nil && len(b.Entries) > 0 && set(t, text, b) != text {
			t.Errorf("taken for a block:\n%s", text)
		}
		if err == nil && len(b.Entries) == 0 && len(text) >= len("# >>> sgpatch") {
			t.Errorf("not noticed:\n%s", text)
		}
	}
	for i := range good {
		check(good[:i])
		check(good[:i] + good[i+1:])
		for _, c := range "\x00\n\r 1A\"\\#<>\xff" {
			check(good[:i] + string(c) + good[i+1:])
			check(good[:i] + string(c) + good[i:])
		}
	}
}
