// Package install finds out which SGLang a Python would really import, which
// sitecustomize.py it would run before that, and where its bytecode lies. It
// asks the interpreter and reads; it never imports sglang and writes nothing.
package install

import (
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed probe.py
var probe string

// script is the probe; what only an edit of the sitecustomize needs is left out
// where nothing is edited.
func script(here bool) string {
	parts := strings.Split(probe, "# ----")
	if here {
		return parts[0] + "# ----" + parts[2]
	}
	return probe
}

// Query is one question to an interpreter.
type Query struct {
	Python  string   // path of the interpreter; a venv's is not resolved to its base
	Options []string // interpreter options that CMD would give it, as "-S"
	Script  string   // the file CMD would run, if any: its directory leads sys.path
	Here    bool     // ask in the working directory, as CMD would; otherwise from /

	// Orphan names the root of an install that this interpreter had, if
	// records of it are left; it is asked when there is no sglang any more.
	Orphan func(Answer) string
}

// Answer is what the interpreter said.
type Answer struct {
	Executable, Prefix, BasePrefix string
	Version, Tag, Optimize         string
	Magic                          []byte   // of its bytecode files
	Extensions                     []string // endings of extension modules, as ".cpython-312-x86_64-linux-gnu.so"
	PycachePrefix                  string   // PYTHONPYCACHEPREFIX or -X pycache_prefix
	NoSite, Isolated, NoEnv        bool
	Env                            map[string]string // the environment after start-up
	Origin                         string            // sglang/__init__.py as found
	Locations                      []string          // sglang's directories, several for a namespace package
	Copies                         []string          // every directory on sys.path with an sglang package
	Path                           []string          // sys.path, absolute
	Purelib                        []string          // the interpreter's own site directories that are on sys.path
	UserSite                       string
	PythonPath                     []string
	Site                           string // the sitecustomize that is imported, "" if there is none
	SiteLoaded                     bool   // it ran to its end
	SiteIsFile                     bool
	SiteBroken                     string   // why it cannot be compiled
	OtherSites                     []string // every sitecustomize on sys.path
	Problems                       []string
}

// PythonError says that an interpreter could not be asked.
type PythonError struct {
	Python string
	Err    error
	Stderr string
}

func (e *PythonError) Error() string {
	s := fmt.Sprintf("%s: %v", e.Python, e.Err)
	if t := strings.TrimSpace(e.Stderr); t != "" {
		s += ": " + lastLine(t)
	}
	return s
}

func (e *PythonError) Unwrap() error { return e.Err }

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }

const askLimit = 30 * time.Second

// Ask starts the interpreter once, under the caller's environment.
func Ask(ctx context.Context, q Query) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	key := fmt.Sprintf("sgpatch-%016x", rand.Uint64()) // tells our lines from a sitecustomize's
	first := "-"
	switch {
	case q.Script != "":
		first = scriptDir(q.Script)
	case q.Here:
		first = ""
	}
	args := append(append([]string{}, q.Options...), "-c", script(q.Here), key, first)
	cmd, err := Command(ctx, q.Python, nil, args...)
	if err != nil {
		return Answer{}, err
	}
	if !q.Here {
		cmd.Dir = "/"
	}
	var stdout, stderr Output
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// something that a sitecustomize left running may hold the pipe open
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		switch cr := cmd.SysProcAttr.Credential; {
		case ctx.Err() != nil:
			err = fmt.Errorf("no answer within %s", askLimit)
		case stdout.full || stderr.full:
			err = fmt.Errorf("it printed more than %d MiB", maxOutput>>20)
		case cr != nil:
			err = fmt.Errorf("%w (it was started as user %d, who owns it)", err, cr.Uid)
		}
		return Answer{}, &PythonError{Python: q.Python, Err: err, Stderr: stderr.String()}
	}
	a, err := parseAnswer(q.Python, key, stdout.String())
	a.conclude(q.Here)
	return a, err
}

// scriptDir is what `python SCRIPT` puts at the head of sys.path: the directory
// of the file, or the directory (or archive) that has a __main__.py itself.
func scriptDir(script string) string {
	real := realOr(script)
	if st, err := os.Stat(real); (err == nil && st.IsDir()) || strings.HasSuffix(real, ".zip") || strings.HasSuffix(real, ".pyz") {
		return real
	}
	return filepath.Dir(real)
}

func realOr(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

func parseAnswer(python, key, text string) (Answer, error) {
	a := Answer{Env: map[string]string{}}
	for line := range strings.Lines(text) {
		line, ours := strings.CutPrefix(strings.TrimRight(line, "\r\n"), key+" ")
		facts, whole := strings.CutSuffix(line, " end")
		if !ours || !whole {
			continue // printed by somebody's sitecustomize
		}
		for _, fact := range strings.Split(facts, " ") {
			text, err := hex.DecodeString(fact)
			if err != nil {
				return a, &PythonError{Python: python, Err: errors.New("its answer is garbled")}
			}
			v := strings.Split(string(text), "\x00")
			a.take(v[0], v[1:])
		}
		return a, nil
	}
	return a, &PythonError{Python: python, Err: errors.New("it gave no answer; is it a Python?")}
}

// width is how many values a fact has at least.
var width = map[string]int{"python": 9, "flags": 3, "sglang": 1, "sitecustomize": 3, "broken": 1, "problem": 1}

func (a *Answer) take(key string, v []string) {
	if len(v) < width[key] {
		return
	}
	switch key {
	case "python":
		a.Executable, a.Prefix, a.BasePrefix, a.Version = v[0], v[1], v[2], v[3]
		a.Tag, a.Optimize, a.PycachePrefix, a.UserSite = v[4], v[5], v[6], v[7]
		a.Magic, _ = hex.DecodeString(v[8])
	case "extensions":
		a.Extensions = v
	case "flags":
		a.NoSite, a.Isolated, a.NoEnv = v[0] != "0", v[1] != "0", v[2] != "0"
	case "env":
		for _, kv := range v {
			name, value, _ := strings.Cut(kv, "=")
			a.Env[name] = value
		}
	case "sglang":
		a.Origin, a.Locations = v[0], v[1:]
	case "path":
		a.Path = v
	case "purelib":
		a.Purelib = v
	case "sitecustomize":
		a.Site, a.SiteLoaded, a.SiteIsFile = v[0], v[1] == "1", v[2] == "1"
	case "broken":
		a.SiteBroken = v[0]
	case "problem":
		a.Problems = append(a.Problems, v[0])
	}
}

// conclude works out what the interpreter need not: it is waited for.
func (a *Answer) conclude(here bool) {
	base := "/"
	if dir, err := os.Getwd(); here && err == nil {
		base = dir
	}
	absolute := func(path string) string {
		if filepath.IsAbs(path) {
			return filepath.Clean(path)
		}
		return filepath.Join(base, path)
	}
	for i := range a.Locations {
		a.Locations[i] = absolute(a.Locations[i])
	}
	for i, dir := range a.Path {
		a.Path[i] = absolute(dir)
		dir = a.Path[i]
		if slices.Contains(a.Path[:i], dir) {
			continue
		}
		if isFile(filepath.Join(dir, "sglang", "__init__.py")) {
			a.Copies = append(a.Copies, dir)
		}
		for _, name := range []string{"sitecustomize.py", "sitecustomize/__init__.py"} {
			if site := filepath.Join(dir, name); isFile(site) {
				a.OtherSites = append(a.OtherSites, site)
			}
		}
	}
	a.Purelib = slices.DeleteFunc(a.Purelib, func(dir string) bool { return !slices.Contains(a.Path, filepath.Clean(dir)) })
	for _, dir := range filepath.SplitList(a.Env["PYTHONPATH"]) {
		if dir != "" && !a.NoEnv {
			a.PythonPath = append(a.PythonPath, absolute(dir))
		}
	}
}
