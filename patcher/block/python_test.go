package block

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

//go:embed testdata/compare.py
var comparePy string

//go:embed testdata/run.py
var runPy string

// interpreter is the real python3, past any wrapper of that name.
var interpreter = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// python prepares a run of the interpreter. Without one there is no proof that
// the block is Python, so its absence is a failure.
func python(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := interpreter()
	if err != nil {
		t.Fatal("this test needs python3 on PATH:", err)
	}
	cmd := exec.Command(path, args...)
	cmd.Stderr = new(bytes.Buffer)
	return cmd
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, cmd.Stderr)
	}
	return string(out)
}

// comparer feeds texts to compare.py, each with and without a block.
type comparer struct {
	t     *testing.T
	in    io.WriteCloser
	out   bytes.Buffer
	cmd   *exec.Cmd
	count int
}

func newComparer(t *testing.T) *comparer {
	c := &comparer{t: t, cmd: python(t, "-I", "-W", "ignore", "-c", comparePy)}
	c.cmd.Stdout = &c.out
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in = in; c.cmd.Start() != nil {
		t.Fatal("python3 does not start")
	}
	return c
}

func (c *comparer) add(name string, text []byte) {
	c.count++
	b := Block{Entries: []Entry{{"SGPATCH_TEST", "1", []string{rootA}}}}
	with, err := Set(text, b)
	if err == nil {
		if back, err := Set(with, Block{}); err != nil || !bytes.Equal(back, text) {
			c.t.Errorf("%s: taken out again it is not the same: %v", name, err)
		}
	}
	for _, part := range [][]byte{[]byte(name), text, with} {
		size := binary.LittleEndian.AppendUint32(nil, uint32(len(part)))
		if _, err := c.in.Write(append(size, part...)); err != nil {
			c.t.Fatalf("%v\n%s", err, c.cmd.Stderr)
		}
	}
}

func (c *comparer) finish() {
	c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		c.t.Fatalf("%v\n%s", err, c.cmd.Stderr)
	}
	fails, ok := strings.CutSuffix(c.out.String(), fmt.Sprintf("compared %d\n", c.count))
	if fails != "" || !ok {
		c.t.Errorf("%s", c.out.String())
	}
}

func TestPythonAgreesOnPositions(t *testing.T) {
	c := newComparer(t)
	for name, marked := range positions {
		c.add(name, []byte(strings.Replace(marked, "@@", "", 1)))
	}
	for name, text := range unfit {
		if name != "lone carriage returns" && name != "utf-7" && !strings.HasPrefix(name, "two-byte") {
			c.add(name, []byte(text))
		}
	}
	for name, text := range foreign {
		c.add(name, []byte(text))
	}
	c.finish()
}

// pieces of which the tops of files are made, good ones and bad ones.
var pieces = []string{
	"\xef\xbb\xbf", "#!/x\n", "# coding: latin-1\n", "# c\n", "\n", "\r\n", "\f", "    ", "\\\n", ";", "; ", "(", ")", "\n", "\n",
	"'Doc'", "\"\"\"D\n'c\"\"\"", "'''a\\''' b\n'''", "r'\\'", "u'x\\\ny'", "b'x'", "f'{x}'", "('a' # )\n'b')", "''", "'", "'''",
	"from __future__ import division\n", "from __future__ import annotations", "from __future__ import (division,\n\n generators) # x",
	"from \\\n  __future__ import \\\n  division", "from __future__ import nothing\n", "from __future__", "from . import x", "import os\n", "x = '''\n",
	"if x:\n", "else:\n", "finally: pass\n", "pass\n", ", ", " + ", ": int\n", " # end\n", " # end",
}

// Python and Position agree on tops of files that nobody would write.
func TestPythonAgreesOnMixtures(t *testing.T) {
	c := newComparer(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var text []byte
		for range 1 + random.IntN(7) {
			text = append(text, pieces[random.IntN(len(pieces))]...)
		}
		c.add(fmt.Sprintf("%q", text), text)
	}
	c.finish()
}

// Every file of the standard library, its tests with their broken and oddly
// encoded sources included. With -short, one in ten.
func TestStandardLibrary(t *testing.T) {
	files := stdlib(t)
	step, shards := 1, 4
	if testing.Short() {
		step = 10
	}
	for shard := range shards {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			c := newComparer(t)
			for i := shard * step; i < len(files); i += shards * step {
				text, err := os.ReadFile(files[i])
				if err != nil {
					t.Fatal(err)
				}
				c.add(files[i], text)
			}
			c.finish()
			t.Logf("%d files", c.count)
		})
	}
}

func stdlib(t *testing.T) []string {
	t.Helper()
	dir := strings.TrimSpace(output(t, python(t, "-I", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))")))
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasSuffix(path, "-packages"):
			return fs.SkipDir
		case d.Type().IsRegular() && filepath.Ext(path) == ".py":
			files = append(files, path)
		}
		return nil
	})
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files in %s: %v", len(files), dir, err)
	}
	return files
}

// ran is what run.py says.
type ran struct {
	Names []string
	Doc   *string
	Env   map[string]string
}

func (r ran) value(t *testing.T, name string) string {
	t.Helper()
	b, err := hex.DecodeString(r.Env[name])
	if _, ok := r.Env[name]; !ok || err != nil {
		t.Errorf("%s is not set", name)
	}
	return string(b)
}

// site starts an interpreter whose sitecustomize.py is text.
func site(t *testing.T, text string, env ...string) (ran, string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := python(t, "-B", "-c", runPy)
	cmd.Dir = dir
	cmd.Env = append([]string{"PYTHONUTF8=1", "PYTHONPATH=."}, env...)
	var r ran
	if err := json.Unmarshal([]byte(output(t, cmd)), &r); err != nil {
		t.Fatal(err)
	}
	return r, strings.ReplaceAll(fmt.Sprint(cmd.Stderr), dir, "")
}

func TestForeignRuns(t *testing.T) {
	for name, text := range foreign {
		t.Run(name, func(t *testing.T) {
			before, said := site(t, text)
			after, saysNow := site(t, set(t, text, one(rootA)))
			if (said == "") != (saysNow == "") || strings.Count(said, "\n") != strings.Count(saysNow, "\n") {
				t.Errorf("standard error was %q, is %q", said, saysNow)
			}
			if name == "syntax-error" {
				return
			}
			if got := after.value(t, gate); got != "1" {
				t.Errorf("%s is %q", gate, got)
			}
			delete(after.Env, gate)
			if diff := cmp.Diff(before, after); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What os.environ gets is, byte for byte, the value.
func TestValues(t *testing.T) {
	values := []string{
		"", " ", "1", "\"", "\\", "'", "\n", "\r\n", "a\\nb", "\t\x01\x7f\x1b[0m", "é", "😀\U0010ffff", "\ufffd\ufeff\u2028", "\xff",
		"\xc3", "\xed\xa0\x80\xed\xb3\xbf", "\\udcff", "\\N{DASH}", "%s {x} $HOME #", "expandable_segments:True,a:0.9",
		"coding=utf-7", "# >>> sgpatch >>>", "\"\"\"", strings.Repeat("long \xe9é", 1000),
	}
	var b Block
	for i, v := range values {
		b.Entries = append(b.Entries, Entry{fmt.Sprintf("V%d", i), v, []string{"/\n\xff\"é", fmt.Sprintf("/%d", i)}})
	}
	got, said := site(t, set(t, "", b))
	for i, v := range values {
		if have := got.value(t, fmt.Sprintf("V%d", i)); have != v {
			t.Errorf("%q came out as %q", v, have)
		}
	}
	if said != "" {
		t.Error(said)
	}
}

func TestSetIfAbsent(t *testing.T) {
	b := Block{Entries: []Entry{{"EMPTY", "1", []string{rootA}}, {"OFF", "1", []string{rootA}}, {"ABSENT", "1", []string{rootA}}}}
	got, _ := site(t, set(t, "", b), "EMPTY=", "OFF=0")
	for name, want := range map[string]string{"EMPTY": "", "OFF": "0", "ABSENT": "1"} {
		if have := got.value(t, name); have != want {
			t.Errorf("%s is %q, want %q", name, have, want)
		}
	}
}

// An os.environ that raises does not stop the interpreter, and a value that
// cannot be set does not keep the next one from being set.
func TestNeverStops(t *testing.T) {
	block := set(t, "", Block{Entries: []Entry{{"A", "1", []string{rootA}}, {"B", "1", []string{rootA}}}})
	const stub = `
import sys, types
class Environ(dict):
    def setdefault(self, name, value):
        if name == "A":
            raise OSError("no room")
        dict.setdefault(self, name, value)
fake = types.ModuleType("os")
fake.environ = Environ()
sys.modules["os"], names = fake, {}
exec(sys.argv[1], names)
del fake.environ.__class__.setdefault, names["__builtins__"]
print(dict(fake.environ), names)
del fake.environ
exec(sys.argv[1], names)
sys.modules["os"] = None
exec(sys.argv[1], names)
print("done")
`
	if got := output(t, python(t, "-c", stub, block)); got != "{'B': '1'} {}\ndone\n" {
		t.Errorf("%q", got)
	}
}
