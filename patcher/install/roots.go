package install

import (
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Roots yields the directories where the records of an interpreter's SGLang may
// lie, by the layouts of venvs, conda prefixes, Debian and editable installs,
// the cheapest guess first. It starts nothing.
func Roots(python string) iter.Seq[string] {
	return func(yield func(string) bool) {
		prefix := filepath.Dir(filepath.Dir(python))
		libs := versions(filepath.Join(prefix, "lib"))
		sites := within(libs, "site-packages")
		for _, dir := range sites {
			if !yield(dir) {
				return
			}
		}
		debian := slices.Concat(within(versions(filepath.Join(prefix, "local", "lib")), "dist-packages"), within(libs, "dist-packages"))
		for _, dir := range debian {
			if !yield(dir) {
				return
			}
		}
		sites = append(sites, debian...)
		for _, dir := range sites {
			for _, root := range pthRoots(dir) {
				if !yield(root) {
					return
				}
			}
		}
	}
}

// versions lists the directories of Python's versions in a lib directory.
func versions(lib string) (all []string) {
	entries, _ := os.ReadDir(lib)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "python3") {
			all = append(all, filepath.Join(lib, e.Name()))
		}
	}
	return all
}

// within keeps those directories that have one of that name in them.
func within(dirs []string, name string) (all []string) {
	for _, dir := range dirs {
		if at := filepath.Join(dir, name); Exists(at) {
			all = append(all, at)
		}
	}
	return all
}

// Glob lists the files in a directory that a pattern fits. What the directory is
// called is no pattern: a path may have brackets.
func Glob(dir, pattern string) []string {
	names, _ := fs.Glob(os.DirFS(dir), pattern)
	for i := range names {
		names[i] = filepath.Join(dir, names[i])
	}
	return names
}

// mapped is where a finder of setuptools says that sglang is. A path that Python
// would write with an escape is not read: then nothing is found, and no guess made.
var mapped = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`'sglang': '([^'\\]+)/sglang'`) })

// pthRoots reads the directories that .pth files add, and those of the finders that
// they start: an editable install of a package beside its pyproject.toml, as in
// SGLang's own images, is such a finder.
func pthRoots(dir string) []string {
	var all []string
	for _, f := range Glob(dir, "*.pth") {
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
