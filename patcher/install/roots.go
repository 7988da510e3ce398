package install

import (
	"iter"
	"path/filepath"
	"strings"
)

// Roots yields the directories where the records of an interpreter's SGLang may
// lie, by the layouts of venvs, conda prefixes, Debian and editable installs,
// the cheapest guess first. It starts nothing.
func Roots(python string) iter.Seq[string] {
	return func(yield func(string) bool) {
		prefix := filepath.Dir(filepath.Dir(python))
		var sites []string
		for _, pattern := range []string{"lib/python3*/site-packages", "local/lib/python3*/dist-packages", "lib/python3*/dist-packages"} {
			dirs, _ := filepath.Glob(filepath.Join(prefix, pattern))
			for _, dir := range dirs {
				if !yield(dir) {
					return
				}
			}
			sites = append(sites, dirs...)
		}
		for _, dir := range sites {
			for _, root := range pthRoots(dir) {
				if !yield(root) {
					return
				}
			}
		}
	}
}

// pthRoots reads the directories that .pth files add.
func pthRoots(dir string) []string {
	var all []string
	files, _ := filepath.Glob(filepath.Join(dir, "*.pth"))
	for _, f := range files {
		text, err := read(f)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); filepath.IsAbs(line) {
				all = append(all, line)
			}
		}
	}
	return all
}
