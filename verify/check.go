package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
)

const checkLimit = 30 * time.Second

// compileOnly stands in for a set that brings no check of its own.
const compileOnly = `
import base64, json, sys
q, bad = json.load(sys.stdin), []
for path, text in q["files"].items():
    if path.endswith(".py"):
        try: compile(base64.b64decode(text), path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as e: bad.append("%s: %s" % (path, e))
print(json.dumps({"ok": not bad, "checked": len(q["files"]), "failures": bad}))
sys.exit(bool(bad))
`

// Checker runs the behaviour checks of sets; it remembers what it proved.
type Checker struct {
	Python string          // "" if none was named
	Find   func() string   // finds one then, "" if there is none
	Allow  map[string]bool // ids of sets whose own check.py may run
	done   map[string]error
}

// request is what a check.py reads from its standard input.
type request struct {
	Root     string            `json:"root"`
	Files    map[string][]byte `json:"files"`    // base64 of the staged contents
	Pristine map[string][]byte `json:"pristine"` // and of those before our hunks
}

type verdict struct {
	OK       bool     `json:"ok"`
	Checked  int      `json:"checked"`
	Failures []string `json:"failures"`
}

// Prove runs a set's check.py on staged contents, in the target interpreter:
// -I -B, 30 s, a process group and an empty directory of its own. The error
// says what the result would do wrong.
func (c *Checker) Prove(ctx context.Context, p patcher.Proof) error {
	text := string(p.Set.Check)
	if c.Python == "" && c.Find != nil {
		c.Python, c.Find = c.Find(), nil
	}
	switch {
	case c.Python == "":
		return &patcher.RefusedError{Code: "unproved", Message: "the contents are not in the release table, and there is no Python (3.9 or later) to check what the patch would do to them", Hint: "name an interpreter with --python"}
	case text == "":
		text = compileOnly
	case !c.Allow[p.Set.ID]:
		return &patcher.RefusedError{Code: "check-not-allowed", Message: fmt.Sprintf("the check.py of %s would have to prove this patch, and may not run", p.Set.ID), Hint: "read its check.py; if you trust it: --allow-check"}
	}
	in, err := json.Marshal(request{p.Root, p.Staged, p.Pristine})
	if err != nil {
		return err
	}
	key := p.Set.ID + string(in)
	if err, ok := c.done[key]; ok {
		return err
	}
	err = c.run(ctx, text, texts(p), in)
	if c.done == nil {
		c.done = map[string]error{}
	}
	c.done[key] = err
	return err
}

// texts lists what a check executes, so that it runs as its owner.
func texts(p patcher.Proof) []string {
	all := []string{p.Root}
	for path := range p.Staged {
		all = append(all, filepath.Join(p.Root, path))
	}
	return all
}

func (c *Checker) run(ctx context.Context, text string, owned []string, in []byte) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	cmd, err := install.Command(ctx, c.Python, owned, "-I", "-B", "-c", text)
	if err != nil {
		return err
	}
	uid, gid := os.Geteuid(), os.Getegid()
	if cr := cmd.SysProcAttr.Credential; cr != nil {
		uid, gid = int(cr.Uid), int(cr.Gid)
	}
	dir, remove, err := patcher.Scratch(uid, gid)
	if err != nil { // nothing was checked, so nothing is wrong with the patch
		return &patcher.RefusedError{Code: "unproved", Message: fmt.Sprintf("there is no place for the behaviour check: %v", err), Hint: "set TMPDIR to a directory that can be written"}
	}
	defer remove()
	var stdout, stderr install.Output
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, bytes.NewReader(in), &stdout, &stderr
	if err = cmd.Run(); errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the behaviour check did not end within %s", checkLimit)
	}
	var v verdict
	if jerr := json.Unmarshal(stdout.Bytes(), &v); jerr != nil {
		return fmt.Errorf("the behaviour check gave no verdict: %s", orElse(lastLine(stderr.String()), "its output is no JSON object"))
	}
	if err != nil || !v.OK {
		if len(v.Failures) == 0 {
			return errors.New("the behaviour check failed")
		}
		return errors.New(strings.Join(v.Failures, "; "))
	}
	return nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// AnyPython finds a python3 of 3.9 or later for the checks of an install
// without an interpreter, "" if there is none.
func AnyPython(ctx context.Context) string {
	python, err := exec.LookPath("python3")
	if err != nil {
		return ""
	}
	if python, err = filepath.Abs(python); err != nil {
		return ""
	}
	a, err := install.Ask(ctx, install.Query{Python: python})
	if err != nil {
		return ""
	}
	var major, minor int
	if n, _ := fmt.Sscanf(a.Version, "%d.%d", &major, &minor); n != 2 || major != 3 || minor < 9 {
		return ""
	}
	return python
}
