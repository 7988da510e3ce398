package install

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Install is one SGLang that one Python imports.
type Install struct {
	Root     string // the directory that patch paths start from
	Python   string // as given or found, "" with --root alone
	Release  string // "" if nothing says it
	Editable bool   // Root is a checkout, not a site directory
	Site     string // the sitecustomize that is imported or would be made, "" if there can be none
	HasSite  bool   // Site exists
	SiteErr  error  // why no entry may be put into Site
	Gone     bool   // no sglang any more, but records or a block name this root
	Asked    bool   // an interpreter was asked
	Told     bool   // the operator named Root
	Answer   Answer
}

// NotFoundError says that no SGLang was found, and what was tried.
type NotFoundError struct{ Tried []string }

func (e *NotFoundError) Error() string {
	if len(e.Tried) == 0 {
		return "no SGLang found: no python3 or python on PATH"
	}
	return "no SGLang found; asked " + strings.Join(e.Tried, "; ")
}

// ManyError says that sglang is spread over several directories.
type ManyError struct{ Locations []string }

func (e *ManyError) Error() string {
	return "several directories make up sglang here, and none has an __init__.py: " + strings.Join(e.Locations, ", ")
}

// Pythons lists the interpreters to try when none is named: $VIRTUAL_ENV's,
// then python3 and python on PATH.
func Pythons() []string {
	var all []string
	if v := os.Getenv("VIRTUAL_ENV"); v != "" {
		if p := filepath.Join(v, "bin", "python"); isFile(p) {
			all = append(all, p)
		}
	}
	for _, name := range []string{"python3", "python"} {
		if p, err := exec.LookPath(name); err == nil {
			if p, err = filepath.Abs(p); err == nil && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// Find asks the interpreter of q, or each of Pythons until one has sglang. The
// install it returns may be Gone. The error is a *PythonError, *NotFoundError
// or *ManyError.
func Find(ctx context.Context, q Query) (Install, error) {
	if q.Python != "" {
		var err error
		if q.Python, err = AbsPython(q.Python); err != nil {
			return Install{}, err
		}
		in, why, err := find(ctx, q)
		if err == nil && why != "" {
			err = &NotFoundError{[]string{why}}
		}
		return in, err
	}
	var tried []string
	var gone *Install
	for _, q.Python = range Pythons() {
		in, why, err := find(ctx, q)
		switch {
		case err != nil:
			tried = append(tried, err.Error())
		case why != "":
			tried = append(tried, why)
		case in.Gone:
			tried = append(tried, q.Python+" (no sglang any more)")
			if gone == nil {
				gone = &in
			}
		default:
			return in, nil
		}
		if ctx.Err() != nil {
			return Install{}, ctx.Err()
		}
	}
	if gone != nil {
		return *gone, nil
	}
	return Install{}, &NotFoundError{tried}
}

// find returns why not, in words, if this interpreter has no sglang.
func find(ctx context.Context, q Query) (Install, string, error) {
	a, err := Ask(ctx, q)
	for try := 0; err == nil && try < 3 && gone(a.Site); try++ {
		a, err = Ask(ctx, q) // somebody took it away between the answer and now
	}
	if err != nil {
		return Install{}, "", err
	}
	in := Install{Python: q.Python, Asked: true, Answer: a}
	in.settle()
	switch {
	case len(a.Locations) == 0 || (len(a.Locations) == 1 && !isFile(filepath.Join(a.Locations[0], "__init__.py"))):
		// not there, or a directory that pip left behind because of others' files
		if q.Orphan != nil {
			in.Root = q.Orphan(a)
		}
		if in.Root == "" {
			return in, q.Python + " (no sglang)", nil
		}
		in.Gone = true
		return in, "", nil
	case len(a.Locations) > 1 && !isFile(filepath.Join(a.Locations[0], "__init__.py")):
		return in, "", &ManyError{a.Locations}
	}
	in.Root = filepath.Dir(a.Locations[0])
	if filepath.Base(a.Locations[0]) != "sglang" {
		return in, fmt.Sprintf("%s (sglang is mapped to %s)", q.Python, a.Locations[0]), nil
	}
	in.Editable = in.checkout()
	in.Release = Release(in.Root, a.Purelib...)
	return in, "", nil
}

func gone(path string) bool {
	_, err := os.Lstat(path)
	return strings.HasSuffix(path, ".py") && errors.Is(err, fs.ErrNotExist)
}

// settle decides which file the environment entry belongs into.
func (in *Install) settle() {
	a := in.Answer
	switch {
	case a.NoSite:
		in.SiteErr = errors.New("this interpreter is started with -S: no sitecustomize is imported")
	case a.Site != "":
		in.Site, in.HasSite = a.Site, true
		in.SiteErr = unsuited(a)
	default:
		for _, dir := range a.Purelib {
			if st, err := os.Stat(dir); err == nil && st.IsDir() {
				in.Site = filepath.Join(dir, "sitecustomize.py")
				return
			}
		}
		in.SiteErr = errors.New("this interpreter has no site-packages directory to put a sitecustomize.py into")
	}
}

// unsuited says why the sitecustomize that is imported cannot carry the entry.
func unsuited(a Answer) error {
	dir := filepath.Dir(a.Site)
	if filepath.Base(a.Site) == "__init__.py" {
		dir = filepath.Dir(dir)
	}
	switch {
	case !a.SiteIsFile || !strings.HasSuffix(a.Site, ".py") || !isFile(a.Site):
		return fmt.Errorf("%s: the sitecustomize that is imported is not a Python source file", a.Site)
	case !named(a.Site):
		// the answer is that of a program which may belong to somebody else
		return fmt.Errorf("%s: that is not the name of a sitecustomize", a.Site)
	case a.SiteBroken != "":
		return fmt.Errorf("%s: Python cannot run this file at all: %s", a.Site, a.SiteBroken)
	case slices.Contains(a.PythonPath, dir) && !slices.Contains(a.Purelib, dir):
		return fmt.Errorf("%s: this sitecustomize is seen only through PYTHONPATH; a server started without it would not have the entry", a.Site)
	}
	return nil
}

// FindAt is the install at a root as an interpreter judges it.
func FindAt(ctx context.Context, q Query, root string) (Install, error) {
	at, err := AtRoot(root, "")
	if err != nil {
		return at, err
	}
	if q.Python, err = AbsPython(q.Python); err != nil {
		return Install{}, err
	}
	a, err := Ask(ctx, q)
	if err != nil {
		return Install{}, err
	}
	in := Install{Root: at.Root, Release: at.Release, Gone: at.Gone, Python: q.Python, Asked: true, Told: true, Answer: a}
	in.settle()
	in.Editable = in.checkout()
	return in, nil
}

// AbsPython makes a path absolute without following it: a venv's python is a
// link to its base, and not the same interpreter.
func AbsPython(python string) (string, error) {
	abs, err := filepath.Abs(python)
	if !strings.ContainsRune(python, '/') {
		abs, err = exec.LookPath(python)
	}
	if st, serr := os.Stat(abs); err == nil && serr == nil && st.IsDir() {
		err = errors.New("that is a directory, not an interpreter")
	}
	if err != nil {
		return "", &PythonError{Python: python, Err: err}
	}
	return abs, nil
}

// SamePython says whether two paths are the same interpreter: a venv has it
// under several names in one directory, all leading to one file.
func SamePython(a, b string) bool {
	return a == b || (a != "" && b != "" && realOr(filepath.Dir(a)) == realOr(filepath.Dir(b)) && realOr(a) == realOr(b))
}

// checkout says whether the root is none of the interpreter's own directories.
func (in *Install) checkout() bool {
	a := in.Answer
	return !slices.Contains(a.Purelib, in.Root) && in.Root != a.UserSite && !slices.Contains(a.PythonPath, in.Root)
}

// AtRoot is the install at a root when no interpreter is asked. site is the
// file for the entry, "" for <root>/sitecustomize.py. With a *NotFoundError it
// is what would be there.
func AtRoot(root, site string) (Install, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return Install{}, err
	}
	in := Install{Root: root, Release: Release(root), Site: site, Told: true}
	if in.Site == "" {
		in.Site = filepath.Join(root, "sitecustomize.py")
	}
	if in.Site, err = filepath.Abs(in.Site); err != nil {
		return Install{}, err
	}
	in.HasSite = isFile(in.Site)
	if st, err := os.Stat(filepath.Join(root, "sglang")); err == nil && st.IsDir() {
		return in, nil
	}
	if st, err := os.Lstat(filepath.Join(root, ".sgpatch")); err == nil && st.IsDir() {
		in.Gone = true
		return in, nil
	}
	return in, &NotFoundError{[]string{filepath.Join(root, "sglang") + " (no such directory)"}}
}

// Release reads the version of the sglang at a root: its own version file, or
// the metadata of a distribution beside it. Forks name theirs otherwise; only
// the text counts. It is "" if nothing says it.
func Release(root string, sites ...string) string {
	for _, name := range []string{"_version.py", "version.py"} {
		if v := assigned(filepath.Join(root, "sglang", name)); v != "" {
			return v
		}
	}
	for _, dir := range append([]string{root}, sites...) {
		for _, f := range Glob(dir, "*sglang*.dist-info/METADATA") {
			if v := metadataVersion(f); v != "" {
				return v
			}
		}
	}
	return ""
}

// assigned finds `__version__ = version = '0.5.12'` or the like.
func assigned(path string) string {
	text, err := readFile(path, 1<<20)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(string(line)), "=")
		if !ok || strings.TrimSpace(name) != "__version__" {
			continue
		}
		value = value[strings.LastIndexByte(value, '=')+1:]
		if v := strings.Trim(strings.TrimSpace(value), `"'`); v != "" && !strings.ContainsAny(v, " ()") {
			return v
		}
	}
	return ""
}

func metadataVersion(path string) string {
	f, err := openFile(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), "Version: "); ok {
			return strings.TrimSpace(v)
		}
		if lines.Text() == "" {
			break
		}
	}
	return ""
}
