package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/patcher/patchset"
	"sgpatch/patches"
	"sgpatch/verify/doctor"
	"sgpatch/verify/smi"
)

func doctorFlags(f *pflag.FlagSet, o *options) {
	f.BoolVar(&o.all, "all", false, "also what else could be tried and does not fit here, with the reason")
}

func doctorCommand(ctx context.Context, o *options) (*Report, error) {
	r := newReport("doctor")
	if len(o.args) > 0 {
		return r, usagef("doctor looks at everything: it takes no argument (%s)", o.args[0])
	}
	guide, err := patchset.LoadGuide(patches.Advice)
	if err != nil {
		return r, &loadError{err}
	}
	s := doctor.Subject{Gate: defaultSet, Given: lookupEnv, Guide: guide, All: o.all, FS: os.DirFS("/"), SMI: smi.Ask, Home: homeDir()}
	p, err := o.open(ctx, r, install.Query{Here: true})
	if ctx.Err() != nil {
		return r, errInterrupted
	}
	if err != nil {
		failed := newReport("doctor")
		failed.fail(err)
		r.Checks = append(r.Checks, doctor.Check{Name: "install", State: doctor.Fail, Message: failed.Error, Hint: failed.Hint})
	} else {
		s.Site, s.Env = p.site, p.site.In.Answer.Env
		if !p.site.In.Asked {
			s.Env = p.expected(pythonCommand{})
		}
		for _, v := range p.site.Views() {
			if v.Enabled || (len(v.Files) > 0 && v.State == patcher.Partial) {
				s.Sets = append(s.Sets, v.ID)
			}
		}
	}
	r.Checks = append(r.Checks, doctor.Examine(ctx, s)...)
	if p != nil {
		for _, f := range p.warned(r, []string{defaultSet}) {
			r.Checks = append(r.Checks, doctor.Check{Name: "history", State: doctor.Warn, Message: f.Message, Hint: f.Hint})
		}
	}
	if !doctor.Well(r.Checks) {
		r.Exit = exitVerdict
	}
	return r, nil
}

// homeDir is where this account's SGLang keeps its caches.
func homeDir() string {
	if h := os.Getenv("HOME"); strings.HasPrefix(h, "/") {
		return h
	}
	_, h := install.Account(os.Geteuid())
	return h
}

var checkColour = map[string]string{doctor.OK: "32", doctor.Warn: "33", doctor.Fail: "31"}

// checks prints the rows of doctor, and what to try apart.
func (p printer) checks(all []doctor.Check) {
	const row = "%s  %-14s %s"
	advised := false
	for _, c := range all {
		if c.Name == "try" && !advised {
			advised = true
			p.line("\nwhat else to try here:")
		}
		state := c.State + strings.Repeat(" ", max(0, 4-len(c.State)))
		p.line(row, p.paint(checkColour[c.State], state), c.Name, c.Message)
		way := "next"
		if c.Name == "try" {
			way = "with"
		}
		if c.Hint != "" {
			p.line("      %s: %s", way, c.Hint)
		}
	}
}
