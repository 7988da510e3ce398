// Package doctor looks at everything on a host that decides whether SGLang's
// all-reduce is the one that was meant: a slice of small checks, each of which
// says ok, warn or fail, and what to do next. It changes nothing and starts
// nothing but nvidia-smi.
package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"sgpatch/patcher"
	"sgpatch/patcher/patchset"
	"sgpatch/verify"
)

// States of a check.
const (
	OK   = "ok"
	Warn = "warn"
	Fail = "fail"
	Note = "note" // advice: neither good nor bad
)

// Check is one row.
type Check struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // the next command, or what to change
}

// Subject is what is looked at.
type Subject struct {
	Site  *patcher.Site     // nil if no install was found
	Env   map[string]string // in force, or what the entry would give where no interpreter was asked
	Sets  []string          // that are to hold, by id
	Gate  string            // the set that opens the gate
	Given func(name string) (string, bool)
	Guide patchset.Guide
	All   bool // advice that does not fit as well

	FS    fs.FS                                                     // the host's files, from /
	SMI   func(ctx context.Context, args ...string) ([]byte, error) // nvidia-smi
	Home  string
	facts *facts
}

// facts are what several checks want to know.
type facts struct {
	gpus         []gpu
	capabilities []string
	link         string // "nvlink", "pcie" or "" if nobody knows
	smi          error
}

// checks are all there are, in the order in which they are printed.
var checks = []func(context.Context, *Subject) []Check{
	release, copies, sets, sitecustomize, environment, overwritten, servers, peerCache, gpus, peers, iommu, acs, advice,
}

// Examine runs every check.
func Examine(ctx context.Context, s Subject) []Check {
	s.facts = s.look(ctx)
	var all []Check
	for _, c := range checks {
		all = append(all, c(ctx, &s)...)
	}
	return all
}

// Well says whether no check failed.
func Well(all []Check) bool {
	return !slices.ContainsFunc(all, func(c Check) bool { return c.State == Fail })
}

func ok(name, format string, args ...any) []Check {
	return []Check{{Name: name, State: OK, Message: fmt.Sprintf(format, args...)}}
}

// of makes a row of a finding.
func of(name string, f verify.Finding) Check {
	state := map[string]string{"error": Fail, "warning": Warn, "note": Note}[f.Severity]
	return Check{name, state, f.Message, f.Hint}
}

func release(_ context.Context, s *Subject) []Check {
	if s.Site == nil {
		return nil // whoever looked for it has said so
	}
	in := s.Site.In
	form := ""
	if in.Editable {
		form = ", editable"
	}
	if !in.Asked {
		return []Check{{"install", OK, fmt.Sprintf("SGLang %s in %s", in.Release, in.Root), ""}, {"install", Note, "no interpreter was asked: nobody knows what a server would import, and which variables it would have", "name it as well: --python PATH"}}
	}
	if in.Release == "" {
		return []Check{{"install", Warn, fmt.Sprintf("an SGLang of no known release in %s%s", in.Root, form), "sgpatch status -v"}}
	}
	return ok("install", "SGLang %s in %s%s", in.Release, in.Root, form)
}

// copies are what verify says of the install as a whole.
func copies(_ context.Context, s *Subject) (all []Check) {
	if s.Site == nil {
		return nil
	}
	for _, f := range verify.Whole(s.Site) {
		all = append(all, of(f.Code, f))
	}
	return all
}

// sets are judged as verify judges them.
func sets(ctx context.Context, s *Subject) (all []Check) {
	if s.Site == nil {
		return nil
	}
	for _, v := range verify.Judge(ctx, verify.Request{Site: s.Site, Sets: s.Sets, Env: s.Env, Given: s.Given}) {
		for _, f := range v.Findings {
			all = append(all, of(v.View.ID, f))
		}
		if verify.Holds(v.Findings) {
			all = append(all, ok(v.View.ID, "holds, as verify judges it")...)
		}
	}
	if len(s.Sets) > 0 {
		return all
	}
	v := s.Site.View(s.Gate)
	c := Check{Name: s.Gate, State: OK, Message: "not in place; it fits this SGLang", Hint: "sgpatch apply -n --diff"}
	switch {
	case v.State == patcher.Unsupported:
		c = Check{s.Gate, Warn, "not in place, and not for this SGLang: " + v.Reason, ""}
	case v.State == patcher.Foreign:
		c = Check{s.Gate, Fail, "somebody else has opened the gate: " + v.Reason, "sgpatch status"}
	case !v.Listed:
		c.Message = "not in place; this SGLang is in no table, and apply would prove by a check whether it fits"
	}
	return append(all, c)
}

func sitecustomize(_ context.Context, s *Subject) []Check {
	if s.Site == nil || !s.Site.In.Asked {
		return nil
	}
	in := s.Site.In
	switch {
	case in.SiteErr != nil:
		return []Check{{"sitecustomize", Warn, in.SiteErr.Error(), "sgpatch apply --no-env, and set the variable where the server is started"}}
	case !in.HasSite:
		return ok("sitecustomize", "none yet; apply makes %s", in.Site)
	}
	return ok("sitecustomize", "%s is imported", in.Site)
}

// telling are variables that decide about all-reduce.
var telling = []string{"SGLANG_", "NCCL_", "CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}

// environment is what the interpreter has after its start-up.
func environment(_ context.Context, s *Subject) (all []Check) {
	if s.Site == nil || !s.Site.In.Asked {
		return nil
	}
	env := s.Site.In.Answer.Env
	var set []string
	for name, value := range env {
		if slices.ContainsFunc(telling, func(p string) bool { return strings.HasPrefix(name, p) }) {
			set = append(set, name+"="+value)
		}
	}
	slices.Sort(set)
	if len(set) == 0 {
		set = []string{"nothing of SGLang, NCCL, CUDA or the allocator is set"}
	}
	all = ok("environment", "%s", strings.Join(set, " "))
	for _, name := range []string{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} {
		if strings.Contains(strings.ToLower(env[name]), "expandable_segments:true") {
			all = append(all, Check{"environment", Fail, "expandable_segments break the registration of buffers: with custom all-reduce the server dies at graph capture (invalid argument, custom_all_reduce.cuh)", "take expandable_segments out of " + name})
		}
	}
	if v := env["CUDA_VISIBLE_DEVICES"]; strings.Contains(v, "GPU-") || strings.Contains(v, "MIG-") {
		all = append(all, Check{"environment", Fail, "SGLang reads CUDA_VISIBLE_DEVICES as numbers, and dies of UUIDs", "name the GPUs in CUDA_VISIBLE_DEVICES by number"})
	}
	return all
}

// overwritten are variables that somebody set and SGLang sets again.
func overwritten(_ context.Context, s *Subject) (all []Check) {
	if s.Site == nil {
		return nil
	}
	in := s.Site.In
	for _, o := range s.Guide.Overwrites {
		span := patchset.Span{From: o.From}
		for _, name := range o.Variables {
			if value, ok := in.Answer.Env[name]; ok && in.Release != "" && span.Contains(in.Release) {
				all = append(all, Check{"environment", Note, fmt.Sprintf("%s=%s: SGLang %s sets it itself %s", name, value, in.Release, o.When), ""})
			}
		}
	}
	return all
}

// advice is what else to try here.
func advice(_ context.Context, s *Subject) (all []Check) {
	release := ""
	if s.Site != nil {
		release = s.Site.In.Release
	}
	for _, a := range s.Guide.Advice {
		unfit := a.Unfit(release, s.facts.capabilities, s.facts.link)
		if unfit != "" && !s.All {
			continue
		}
		text := a.Title
		for _, part := range []struct{ before, text string }{{" (not here: ", unfit}, {": ", a.Result}, {"; but ", a.Fails}} {
			if part.text == "" {
				continue
			}
			text += part.before + part.text
			if part.text == unfit {
				text += ")"
			}
		}
		all = append(all, Check{"try", Note, fmt.Sprintf("%s [%s: %s]", text, a.Confidence, a.Source), a.Switch})
	}
	return all
}
