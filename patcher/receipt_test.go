package patcher

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sgpatch/patcher/patchset"
)

// FuzzReceipt: a receipt may come with somebody's image. One that is accepted
// names nothing outside of the install, and reads back as it was written.
func FuzzReceipt(f *testing.F) {
	good := Receipt{Schema: 1, Root: "/r", Sets: []Enabled{{ID: "one", Env: []EnvValue{{Name: "A", Value: "1"}}}}, Files: []Tracked{{Path: "sglang/a.py", Pristine: patchset.DigestOf(nil), Want: patchset.DigestOf([]byte("x")), Sets: []string{"one"}}}}
	f.Add(good.text())
	for _, text := range []string{`{}`, `{"schema":1}`, `{"schema":1,"files":[{"path":"../x"}]}`, `{"schema":1,"entry":{"path":"x"}}`, `[`, "null"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseReceipt("/r", text)
		if err != nil {
			return
		}
		for _, file := range r.Files {
			if !filepath.IsLocal(file.Path) || filepath.IsAbs(file.Path) {
				t.Errorf("accepted %q", file.Path)
			}
		}
		if r.Entry.Path != "" && !filepath.IsAbs(r.Entry.Real) {
			t.Errorf("accepted the entry %q", r.Entry.Real)
		}
		again, err := parseReceipt("/r", r.text())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(r.text()), string(again.text())); d != "" {
			t.Error(d)
		}
	})
}

func TestRecordsNameFilesOfTheInstall(t *testing.T) {
	for path, want := range map[string]bool{
		"sglang/a.py": true, "a..py": true,
		"": false, "/etc/passwd": false, "../a.py": false, "sglang/../../a.py": false, "sglang/./a.py": false, "sglang/": false,
		".sgpatch/receipt.json": false, "sglang/.sgpatch/x": false, "a\nb": false, "a\x00b": false,
	} {
		if ofInstall(path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
}

func TestTraces(t *testing.T) {
	diff := "--- a/m.py\n+++ b/m.py\n@@ -1,2 +1,5 @@\n import os\n+logger.warning(\n+    \"forced on %d GPUs\",\n+    GATE_OF_OURS)\n x = 1\n"
	files, err := patchset.Parse("x.diff", []byte(diff))
	if err != nil {
		t.Fatal(err)
	}
	env := []EnvValue{{Name: "MY_SWITCH", Switch: true}, {Name: "A_VALUE"}}
	for text, want := range map[string]bool{
		"import os\nx = 1\n":                              false,
		"import os\nlogger.warning(\n'other')":            false, // in every release
		"logger.warning(\n    \"forced on %d GPUs\",\n1)": true,
		"if 'MY_SWITCH' in os.environ:\n":                 true,
		"if 'A_VALUE' in os.environ:\n":                   false,
		"":                                                false,
	} {
		if traces([]byte(text), files[0], env) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func TestQuote(t *testing.T) {
	for path, want := range map[string]string{"/opt/venv/bin/python": "/opt/venv/bin/python", "/a b": "'/a b'", "/it's": `'/it'\''s'`, "": "''"} {
		if got := Quote(path); got != want {
			t.Errorf("%q: %s", path, got)
		}
	}
}
