package install

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRoots: every layout is looked into, in order, and what a directory is
// called is no pattern.
func TestRoots(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "[venv]*?")
	write := func(name, text string) {
		path := filepath.Join(prefix, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("bin/python", "")
	write("lib/python3.12/site-packages/more.pth", prefix+"/src\nrelative\nimport __editable___x_finder; __editable___x_finder.install()\n")
	write("lib/python3.12/site-packages/__editable___x_finder.py", "MAPPING = {'sglang': '/work/[x]/python/sglang'}\n")
	write("lib/python3.12/site-packages/sglang-0.5.9.dist-info/METADATA", "Name: sglang\nVersion: 0.5.9\n")
	write("lib/python3/dist-packages/x.py", "")
	write("local/lib/python3.12/dist-packages/x.py", "")
	write("lib/python2.7/site-packages/x.py", "")
	want := []string{
		prefix + "/lib/python3.12/site-packages", prefix + "/local/lib/python3.12/dist-packages", prefix + "/lib/python3/dist-packages",
		prefix + "/src", "/work/[x]/python",
	}
	if got := slices.Collect(Roots(filepath.Join(prefix, "bin", "python"))); !slices.Equal(got, want) {
		t.Errorf("roots %q, want %q", got, want)
	}
	if got := Release(want[0]); got != "0.5.9" {
		t.Errorf("release %q", got)
	}
}
