package install

import (
	"iter"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
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

// mapped is where a finder of setuptools says that sglang is. A path that Python
// would write with an escape is not read: then nothing is found, and no guess made.
var mapped = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`'sglang': '([^'\\]+)/sglang'`) })

// pthRoots reads the directories that .pth files add, and those of the finders that
// they start: an editable install of a package beside its pyproject.toml, as in
// SGLang's own images, is such a finder.
func pthRoots(dir string) []string {
	var all []string
	files, _ := filepath.Glob(filepath.Join(dir, "*.pth"))
	for _, f := range files {
		text, err := readFile(f, 1<<20)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); filepath.IsAbs(line) {
				all = append(all, line)
			} else if name, ok := strings.CutPrefix(line, "import __editable__"); ok {
				name, _, _ = strings.Cut(name, ";")
				finder, _ := readFile(filepath.Join(dir, "__editable__"+filepath.Base(name)+".py"), 1<<20)
				if m := mapped().FindSubmatch(finder); m != nil && filepath.IsAbs(string(m[1])) {
					all = append(all, string(m[1]))
				}
			}
		}
	}
	return all
}
