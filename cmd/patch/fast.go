package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/verify"
)

// verifyFast judges without starting an interpreter, by what apply recorded. If
// that cannot be relied on any more it refuses (exit 3): nothing was judged.
func verifyFast(ctx context.Context, o *options) (*Report, error) {
	r := newReport("verify")
	site, err := o.recorded()
	if err != nil {
		return r, err
	}
	c := readCommand(o.cmd)
	site.In.Answer.Optimize = c.optimize()
	in := site.In
	r.install(in)
	if err := o.unmoved(site); err != nil {
		return r, err
	}
	p := &place{site: site}
	if len(site.Receipt.Sets) == 0 || slices.ContainsFunc(o.args, func(id string) bool { _, ok := site.Receipt.Set(id); return !ok }) {
		// something that is not in place is asked for; its manifest says what it is
		if p.sets, p.mine, err = o.loadSets(); err == nil {
			p.site, err = patcher.Open(in, p.sets)
		}
		if err != nil {
			return r, err
		}
		site = p.site
	}
	site.Quick = true
	site.In.Answer.Env = p.expected(c)
	site.In.Asked = true // as good as: what it would say was recorded
	if o.hasCmd {
		o.recordedInterpreter(r, p, c)
	}
	o.judge(ctx, r, p)
	if r.Exit != exitOK || !o.hasCmd {
		return r, nil
	}
	if site.Moved() {
		return r, o.slow(in.Root, "the records of %s changed while they were judged", in.Root)
	}
	return r, o.start(r)
}

// recordedInterpreter makes sure that CMD starts the interpreter that apply asked.
func (o *options) recordedInterpreter(r *Report, p *place, c pythonCommand) {
	py := p.site.Receipt.Python
	switch {
	case c.python == "":
		r.find(o.wrapper(p))
	case py.Path == "":
		r.find(verify.Finding{Code: "other-interpreter", Severity: "error", Message: fmt.Sprintf("the command starts %s, and apply asked no interpreter", c.python), Hint: "sgpatch verify (without --fast) asks it"})
	case !install.SamePython(c.python, py.Path) && !install.SamePython(c.python, py.Executable):
		r.find(verify.Finding{Code: "other-interpreter", Severity: "error", Message: fmt.Sprintf("the command starts %s, but apply asked %s", c.python, py.Path), Hint: "sgpatch verify (without --fast) asks it"})
	}
}

// slow says why the records are not enough.
func (o *options) slow(path, format string, args ...any) error {
	hint := "sgpatch verify" + o.where()
	if o.python != "" || o.root == "" {
		hint += " (without --fast it asks the interpreter)"
	}
	return &patcher.RefusedError{Code: "not-recorded", Path: path, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// where repeats how the operator named the install.
func (o *options) where() string {
	flags := ""
	if o.python != "" {
		flags += " --python " + patcher.Quote(o.python)
	}
	if o.root != "" {
		flags += " --root " + patcher.Quote(o.root)
	}
	return flags
}

// recorded finds the install by its receipt alone.
func (o *options) recorded() (*patcher.Site, error) {
	if o.root != "" {
		root, err := filepath.Abs(o.root)
		if err != nil {
			return nil, err
		}
		if s := patcher.OpenRecorded(root, ""); s != nil {
			return s, nil
		}
		return nil, o.slow(root, "no receipt in %s", root)
	}
	var pythons []string
	if o.python == "" {
		pythons = install.Pythons()
	} else {
		abs, err := install.AbsPython(o.python)
		if err != nil {
			return nil, err
		}
		pythons = []string{abs}
	}
	for _, python := range pythons {
		for root := range install.Roots(python) {
			if s := patcher.OpenRecorded(root, python); s != nil {
				return s, nil
			}
		}
	}
	return nil, o.slow("", "no receipt found beside %s", strings.Join(pythons, ", "))
}

// unmoved refuses if what apply recorded is not what is there now.
func (o *options) unmoved(s *patcher.Site) error {
	if why := s.Stale(); why != "" {
		return o.slow(s.In.Root, "%s", why)
	}
	for _, name := range []string{"PYTHONHOME", "PYTHONPLATLIBDIR"} {
		if value, ok := lookupEnv(name); ok && value != "" {
			return o.slow(s.In.Root, "%s=%s has Python look for its modules elsewhere", name, value)
		}
	}
	if line, name := s.Besides(); line > 0 {
		return o.slow(s.In.Site, "%s:%d is about %s as well, outside of the entry", s.In.Site, line, name)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PYTHONPATH")) {
		for _, name := range []string{"sglang", "sitecustomize.py", "sitecustomize"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil && filepath.Clean(dir) != s.In.Root {
				return o.slow(dir, "PYTHONPATH leads to %s first", filepath.Join(dir, name))
			}
		}
	}
	if dir, err := os.Getwd(); err == nil && dir != s.In.Root {
		if _, err := os.Stat(filepath.Join(dir, "sglang", "__init__.py")); err == nil {
			return o.slow(dir, "the working directory %s has an sglang of its own, which a server started here may import", dir)
		}
	}
	return nil
}

// expected is what a server's environment will have: what it is given, and from
// the block what it is not given.
func (p *place) expected(c pythonCommand) map[string]string {
	env := map[string]string{}
	p.site.In.Answer.NoSite = slices.ContainsFunc(c.options, dropsSite)
	if !p.site.In.Answer.NoSite {
		for _, e := range p.site.Block.Entries {
			env[e.Name] = e.Value
		}
	}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	return env
}
