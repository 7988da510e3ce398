package install

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestExecutes: a sitecustomize.py that belongs to somebody decides who runs the
// interpreter only where they can reach it at all.
func TestExecutes(t *testing.T) {
	dir, err := os.MkdirTemp("", "sgpatch-env-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	python := filepath.Join(dir, "bin", "python3")
	site := filepath.Join(dir, "lib", "python3.12", "site-packages")
	for _, d := range []string{filepath.Dir(python), site} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	entry := filepath.Join(site, "sitecustomize.py")
	for _, f := range []string{python, entry} {
		if err := os.WriteFile(f, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for mode, want := range map[os.FileMode]bool{0o755: true, 0o711: true, 0o700: false, 0o750: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if reachable(python) != want || slices.Contains(executes(python), entry) != want {
			t.Errorf("%v: reachable %v, the entry counts: %v", mode, reachable(python), slices.Contains(executes(python), entry))
		}
		if !slices.Contains(executes(python), site) {
			t.Errorf("%v: the site directory does not count", mode)
		}
	}
}
