package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/verify"
)

// maxJudgings bounds how often verify starts over because a commit went through
// between its look and the start of CMD.
const maxJudgings = 5

func verifyCommand(ctx context.Context, o *options) (*Report, error) {
	if o.fast {
		return verifyFast(ctx, o)
	}
	for try := 1; ; try++ {
		r := newReport("verify")
		p, err := o.ask(ctx, r)
		var many *install.ManyError
		if errors.As(err, &many) { // that much can be judged: it does not hold
			r.find(verify.Finding{Code: "copies", Severity: "error", Message: err.Error()})
			r.Exit = exitVerdict
			return r, nil
		}
		if err != nil {
			return r, err
		}
		o.judge(ctx, r, p)
		if r.Exit != exitOK || !o.hasCmd {
			return r, nil
		}
		if p.site.Moved() {
			if try < maxJudgings {
				continue
			}
			return r, &patcher.RefusedError{Code: "moved", Path: p.site.In.Root, Message: "the records keep changing while they are judged; the command was not started", Hint: "wait for the other sgpatch to end"}
		}
		return r, o.start(r)
	}
}

// ask finds the install as CMD, or a server started here, would see it.
func (o *options) ask(ctx context.Context, r *Report) (*place, error) {
	c := readCommand(o.cmd)
	q := install.Query{Here: true}
	if c.python != "" {
		q.Options, q.Script = slices.DeleteFunc(slices.Clone(c.options), dropsSite), c.script
		if o.python == "" {
			q.Python = c.python
		}
	}
	p, err := o.open(ctx, r, q)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(c.options, dropsSite) {
		p.withoutSite()
	}
	if o.hasCmd && o.root == "" {
		err = o.sameInterpreter(ctx, r, p, c)
	}
	return p, err
}

// dropsSite knows -S, alone or among other letters. Under it a Python sees no
// site-packages at all: the install is looked for without it, and then judged by
// what the environment alone would give.
func dropsSite(option string) bool {
	return !strings.HasPrefix(option, "--") && !strings.HasPrefix(option, "-X") && !strings.HasPrefix(option, "-W") && strings.ContainsRune(option, 'S')
}

func (p *place) withoutSite() {
	a := &p.site.In.Answer
	a.NoSite = true
	for name := range a.Env {
		if given, ok := lookupEnv(name); ok {
			a.Env[name] = given
		} else {
			delete(a.Env, name)
		}
	}
}

func (o *options) wrapper(p *place) verify.Finding {
	return verify.Finding{Code: "wrapper", Severity: "note", Message: fmt.Sprintf("%s is not a Python: %s was judged, whatever interpreter it starts", o.cmd[0], p.site.In.Python)}
}

// sameInterpreter makes sure that what is judged is what CMD starts.
func (o *options) sameInterpreter(ctx context.Context, r *Report, p *place, c pythonCommand) error {
	if c.python == "" {
		r.find(o.wrapper(p))
		return nil
	}
	a := p.site.In.Answer
	if o.python == "" || install.SamePython(c.python, p.site.In.Python) || install.SamePython(c.python, a.Executable) {
		return nil
	}
	other, err := install.Ask(ctx, install.Query{Python: c.python, Options: c.options, Script: c.script, Here: true})
	if err != nil {
		return err
	}
	if !samePath(other.Prefix, a.Prefix) || !slices.EqualFunc(other.Locations, a.Locations, samePath) || !samePath(other.Site, a.Site) {
		r.find(verify.Finding{Code: "other-interpreter", Severity: "error", Message: fmt.Sprintf("the command starts %s, but %s was judged", c.python, p.site.In.Python), Hint: "leave out --python, or name the one that the command starts"})
	}
	return nil
}

func samePath(a, b string) bool {
	x, errx := filepath.EvalSymlinks(a)
	y, erry := filepath.EvalSymlinks(b)
	return a == b || (errx == nil && erry == nil && x == y)
}

func (o *options) judge(ctx context.Context, r *Report, p *place) {
	req := verify.Request{Site: p.site, Sets: o.args, Env: p.site.In.Answer.Env, Args: o.cmd, Given: lookupEnv}
	if !p.site.In.Asked {
		req.Env = p.filesOnly(r)
	}
	if len(req.Sets) == 0 {
		req.Sets = p.inPlace()
	}
	for _, id := range req.Sets {
		if err := p.exists(id); err != nil {
			r.fail(err)
			return
		}
	}
	for _, v := range verify.Judge(ctx, req) {
		r.set(v.View, v.Env)
		r.Findings = append(r.Findings, v.Findings...)
	}
	r.Findings = append(r.Findings, verify.Whole(p.site)...)
	if o.p2p {
		r.Findings = append(r.Findings, verify.Peers(ctx, p.site.In)...)
	}
	if p.site.Receipt.Last.Command != "" {
		r.Receipt = p.site.Receipt
	}
	if !verify.Holds(r.Findings) {
		r.Exit = exitVerdict
	}
}

// filesOnly is the environment where no interpreter was asked: what the block
// gives counts, and nobody knows whether it is imported.
func (p *place) filesOnly(r *Report) map[string]string {
	r.find(verify.Finding{Code: "files-only", Severity: "note", Path: p.site.In.Root, Message: "no interpreter was asked: the files and the entry were judged, not what a server would see", Hint: "name the interpreter as well: --python PATH"})
	return p.expected(pythonCommand{})
}

// inPlace lists what verify means without a name; with nothing in place, the
// default set, which then does not hold.
func (p *place) inPlace() []string {
	var all []string
	for _, v := range p.site.Views() {
		if v.Enabled || (len(v.Files) > 0 && (v.State == patcher.Held || v.State == patcher.Partial)) {
			all = append(all, v.ID)
		}
	}
	if len(all) == 0 {
		return []string{defaultSet}
	}
	return all
}

// start replaces this process by CMD: same pid, its signals, its exit status.
func (o *options) start(r *Report) error {
	path, err := exec.LookPath(o.cmd[0])
	if err != nil {
		return &patcher.RefusedError{Code: "command", Path: o.cmd[0], Message: fmt.Sprintf("%s cannot be started: %v", o.cmd[0], err), Hint: "check the command behind --"}
	}
	if !o.quiet {
		printer{w: os.Stderr, colour: o.colour(os.Stderr)}.findings(r.Findings)
		fmt.Fprintln(os.Stderr, "sgpatch: all holds; starting "+o.cmd[0])
	}
	err = syscall.Exec(path, o.cmd, os.Environ())
	return &patcher.RefusedError{Code: "command", Path: path, Message: fmt.Sprintf("%s cannot be started: %v", path, err), Hint: "check the command behind --"}
}

// pythonCommand is what a command line says about the Python it starts.
type pythonCommand struct {
	python  string   // "" if it is not a Python
	options []string // of the interpreter
	script  string   // the file it runs, if it runs one
}

// readCommand reads a command line as Python's own getopt does: single letters
// may stand together (-Sc), -c and -m end the options.
//
// A script that starts with a line like #!/opt/venv/bin/python, as pip lays
// "sglang" down, is a Python command, too.
func readCommand(cmd []string) pythonCommand {
	var c pythonCommand
	if len(cmd) == 0 {
		return c
	}
	path, err := exec.LookPath(cmd[0])
	if err != nil {
		return c
	}
	if !isPython(cmd[0]) {
		line := shebang(path)
		if len(line) == 0 || !isPython(line[0]) {
			return c
		}
		return readCommand(append(line, append([]string{path}, cmd[1:]...)...))
	}
	if c.python, err = filepath.Abs(path); err != nil {
		c.python = path
	}
	for i := 1; i < len(cmd); i++ {
		arg := cmd[i]
		switch {
		case arg == "--check-hash-based-pycs" && i+1 < len(cmd):
			c.options = append(c.options, arg, cmd[i+1])
			i++
			continue
		case arg == "-" || arg == "--":
			return c
		case !strings.HasPrefix(arg, "-"):
			c.script = arg
			return c
		case strings.HasPrefix(arg, "--"):
			continue // --help and --version start nothing that could be judged
		}
		flags, rest, kind := letters(arg[1:])
		flags = strings.Map(func(r rune) rune {
			if strings.ContainsRune("Vh?", r) {
				return -1
			}
			return r
		}, flags)
		if flags != "" {
			c.options = append(c.options, "-"+flags)
		}
		switch kind {
		case 'c', 'm':
			return c
		case 'W', 'X':
			if rest == "" && i+1 < len(cmd) {
				i++
				rest = cmd[i]
			}
			c.options = append(c.options, "-"+string(kind)+rest)
		}
	}
	return c
}

// optimize is the level that a Python started so has: -O as often as it is there,
// or what PYTHONOPTIMIZE says if that is more, as Python counts it.
func (c pythonCommand) optimize() string {
	level, given := 0, os.Getenv("PYTHONOPTIMIZE")
	for _, option := range c.options {
		switch {
		case strings.HasPrefix(option, "-X"), strings.HasPrefix(option, "-W"), strings.HasPrefix(option, "--"):
		default:
			level += strings.Count(option, "O")
			if strings.ContainsAny(option, "EI") {
				given = ""
			}
		}
	}
	if given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 1 {
			n = 1
		}
		level = max(level, n)
	}
	return strconv.Itoa(level)
}

// shebang is the command line that a script names for itself, without env.
func shebang(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, 512)
	n, _ := f.Read(head)
	first, _, _ := strings.Cut(string(head[:n]), "\n")
	line, ok := strings.CutPrefix(first, "#!")
	words := strings.Fields(line)
	if !ok || len(words) == 0 {
		return nil
	}
	if filepath.Base(words[0]) == "env" {
		for words = words[1:]; len(words) > 0; words = words[1:] { // its options, and variables
			w := strings.TrimPrefix(words[0], "-S")
			if w != "" && w[0] != '-' && !strings.Contains(w, "=") {
				words[0] = w
				break
			}
		}
	}
	return words
}

// letters splits a cluster of single-letter options at one that takes a value.
func letters(cluster string) (flags, rest string, kind byte) {
	for i := 0; i < len(cluster); i++ {
		switch cluster[i] {
		case 'c', 'm', 'W', 'X':
			return cluster[:i], cluster[i+1:], cluster[i]
		}
	}
	return cluster, "", 0
}

// isPython knows an interpreter by its name, or by the name of what a link leads to.
func isPython(arg string) bool {
	if pythonName(filepath.Base(arg)) {
		return true
	}
	path, err := exec.LookPath(arg)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	return err == nil && pythonName(filepath.Base(path))
}

func pythonName(base string) bool {
	rest, ok := strings.CutPrefix(base, "python")
	return ok && strings.Trim(rest, "0123456789.td") == ""
}

func lookupEnv(name string) (string, bool) { return os.LookupEnv(name) }

func contains(all []string, s string) bool { return slices.Contains(all, s) }
