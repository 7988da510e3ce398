package patchset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// pyScopes prints, for every file of the standard library that this Python can
// parse, its classes and functions as ast sees them, one JSON object a line.
// Lines are counted by "\n", so those of files with lone carriage returns are
// translated.
const pyScopes = `
import ast, json, os, re, sys, sysconfig, warnings
warnings.simplefilter("ignore")
def walk(node, prefix, out):
    parts = (getattr(node, a, ()) for a in ("body", "handlers", "orelse", "finalbody", "cases"))
    for child in (c for part in parts for c in part):
        name = prefix
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = prefix + [child.name]
            first = min([d.lineno for d in child.decorator_list] + [child.lineno])
            out.append([".".join(name), first, child.end_lineno])
        walk(child, name, out)
for folder, folders, files in os.walk(sysconfig.get_paths()["stdlib"]):
    folders[:] = [f for f in folders if f not in ("site-packages", "dist-packages")]
    for f in sorted(files):
        path = os.path.join(folder, f)
        if not f.endswith(".py") or not os.path.isfile(path):
            continue
        data = open(path, "rb").read()
        try:
            tree = ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        out = []
        walk(tree, [], out)
        if re.search(rb"\r(?!\n)", data):
            nl, n = [0, 1], 1
            for end in re.findall(rb"\r\n|\n|\r", data):
                n += end != b"\r"
                nl.append(n)
            out = [[s, nl[a], nl[b]] for s, a, b in out]
        print(json.dumps({"path": path, "scopes": out}))
`

type pyFile struct {
	Path   string
	Scopes [][3]any
}

// TestScopesLikeAST holds the scanner against Python's own parser on every
// file of the standard library, tests of Python's grammar included.
func TestScopesLikeAST(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("python3", "-I", "-B", "-c", pyScopes).Output()
	if err != nil {
		t.Fatalf("python3 is needed to check the scanner: %v", err)
	}
	files, total, bad := 0, 0, 0
	for line := range bytes.Lines(out) {
		var f pyFile
		if err := json.Unmarshal(line, &f); err != nil {
			t.Fatal(err)
		}
		files++
		total += len(f.Scopes)
		if !sameScopes(t, f) {
			if bad++; bad > 10 {
				t.Fatal("and more")
			}
		}
	}
	if files < 100 || total < 1000 {
		t.Fatalf("only %d files with %d scopes: is this the standard library?", files, total)
	}
	t.Logf("%d files, %d scopes", files, total)
}

func sameScopes(t *testing.T, f pyFile) bool {
	text, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	have := Scopes(text)
	for i := range max(len(have), len(f.Scopes)) {
		var want Scope
		if i < len(f.Scopes) {
			s := f.Scopes[i]
			want = Scope{Name: s[0].(string), First: int(s[1].(float64)), Last: int(s[2].(float64))}
		}
		var got Scope
		if i < len(have) {
			got = have[i]
			got.Tail = 0
		}
		if got != want {
			t.Errorf("%s: scope %d is %+v, Python says %+v", f.Path, i, got, want)
			return false
		}
	}
	return true
}

func TestScopes(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"no newline", "def f(): pass", "f 1-1-1"},
		{"byte order mark", bom + "def f(): pass\n", "f 1-1-1"},
		{"one line each", "class A: x = 1\ndef f(): pass\n", "A 1-1-1 f 2-2-2"},
		{"nested", "class A:\n  def f(self):\n    def g(): pass\n    class B: pass\n  x = 1\n", "A 1-5-5 A.f 2-4-4 A.f.g 3-3-3 A.f.B 4-4-4"},
		{"decorators", "@a\n# why\n@b(\n  1)\n\nasync def f():\n  pass\n", "f 1-7-7"},
		{"decorator of another", "@a\nx = 1\ndef f(): pass\n", "f 3-3-3"},
		{"tail", "def f():\n  x = 1\n\n  # end\n# end\n\n@a\ndef g(): pass\n# end", "f 1-2-6 g 7-8-9"},
		{"tabs", "if x:\n\tdef f():\n\t\tpass\n        y = 1\n", "f 2-3-3"},
		{"form feed", "def f():\n  pass\n\f\nx = 1\n", "f 1-2-3"},
		{"CRLF", "def f():\r\n  pass\r\nx = 1\r\n", "f 1-2-2"},
		{"lone CR", "x = 1 # c\rdef f():\r  pass\ny = 1\n", "f 1-1-1"},
		{"continued", "async \\\n def \\\n f(a,\n  b): \\\n  pass\nx = 1\n", "f 1-5-5"},
		{"continued before", "  \\\n def f(): pass\n", "f 2-2-2"},
		{"dedent in brackets", "def f():\n  x = (\n1,\n'''\n''')\n  y = 1\nz = 1\n", "f 1-6-6"},
		{"in a string", "x = \"\"\"\ndef f():\n  pass\n\"\"\"\ny = '\\'\\\ndef g(): pass'\n", ""},
		{"in a comment", "# def f():\n  # def g(): \"\"\"\ndef h(): pass # def i():\n", "h 3-3-3"},
		{"in a name", "define = 1\nclassic()\ndef1 = 2\n", ""},
		{"raw", "x = r'\\'; y = '\ndef f(): pass\nz = rb'\\\\'\ndef g(): pass\n", "f 2-2-2 g 4-4-4"},
		{"f-string", "def f():\n  x = f'{a['b']!r:{w}}' f\"{'#'}{{\" f'{'''\n'''}'\n  return x\n", "f 1-4-4"},
		{"f-string, escaped", "x = f'\\'{{' f'\\{a}' rf'\\{a:\\d}' f'\\N{DASH}'\ndef g(): pass\n", "g 2-2-2"},
		{"f-string, triple", "x = f\"\"\"{a:\n#\"{b['''\ndef f(): pass\n''']}}\ndef f(): pass\"\"\"\ndef g(): pass\n", "g 6-6-6"},
		{"f-string, cut off", "x = f'{a:'\ndef g(): pass\n", "g 2-2-2"},
		{"cut off", "x = 'abc\ndef g(): pass\n", "g 2-2-2"},
		{"not Python", ")}]:\nclass :\ndef\n\\", ""},
	} {
		have := ""
		for _, s := range Scopes([]byte(c.text)) {
			have += fmt.Sprintf(" %s %d-%d-%d", s.Name, s.First, s.Last, s.Tail)
		}
		if strings.TrimSpace(have) != c.want {
			t.Errorf("%s: have %s, want %s", c.name, have, c.want)
		}
	}
}

func TestScopeAt(t *testing.T) {
	scopes := Scopes([]byte("x = 1\nclass A:\n  def f(self):\n    pass\n\n  y = 1\n"))
	for line, want := range []string{"", "", "A", "A.f", "A.f", "A", "A", ""} {
		if have := ScopeAt(scopes, line); have != want {
			t.Errorf("line %d: %q, want %q", line, have, want)
		}
	}
}
