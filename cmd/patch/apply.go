package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/patcher/patchset"
	"sgpatch/verify"
)

func applyCommand(ctx context.Context, o *options) (*Report, error) {
	r := newReport("apply")
	r.DryRun = o.dry
	p, err := o.open(ctx, r, install.Query{})
	if err != nil {
		return r, err
	}
	ids := o.args
	if len(ids) == 0 {
		ids = []string{defaultSet}
	}
	for _, k := range pick(p.sets, ids) {
		if o.noEnv && len(k.Variants) == 0 {
			return r, usagef("%s has nothing but entries; --no-env would leave nothing of it", k.ID)
		}
	}
	checker := o.checker(ctx, p)
	goal := patcher.Goal{
		Command: "apply", Apply: unique(ids), Named: len(o.args) > 0, Env: o.envValues(), NoEnv: o.noEnv, ListedOnly: o.listedOnly, Check: o.check,
		Prove: func(proof patcher.Proof) error { return checker.Prove(ctx, proof) }, Told: o.told(), Reason: o.reason,
	}
	p.copies(r)
	warnings := p.warned(r, goal.Apply)
	if err := o.confirm(ctx, warnings); err != nil {
		return r, err
	}
	r.Findings = append(r.Findings, warnings...)
	out, err := patcher.Converge(ctx, p.site, goal, patcher.Options{Dry: o.dry, Wait: o.wait})
	r.outcome(o, out)
	if err != nil {
		return r, err
	}
	p.byHand(r, out.Site, goal.Apply)
	if len(out.Changed) > 0 {
		p.advice(r, goal.Apply)
	}
	o.record(r, goal)
	return r, nil
}

func unique(ids []string) []string {
	var all []string
	for _, id := range ids {
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all
}

// checker runs behaviour checks: by the target interpreter, or by any python3
// where none was named.
func (o *options) checker(ctx context.Context, p *place) *verify.Checker {
	c := &verify.Checker{Python: p.site.In.Python, Allow: map[string]bool{}}
	for _, s := range p.sets {
		c.Allow[s.ID] = p.mine[s.ID] || o.allowCheck
	}
	if c.Python == "" {
		c.Find = func() string { return verify.AnyPython(ctx) }
	}
	return c
}

// outcome puts what a converge did into the report.
func (r *Report) outcome(o *options, out patcher.Outcome) {
	r.Findings = append(r.Findings, out.Findings...)
	if out.Changed != nil {
		r.Changed = out.Changed
	}
	s, concerned := out.Site, o.args
	if out.Plan != nil {
		concerned = append(slices.Clone(concerned), out.Plan.Receipt.Last.Sets...)
	}
	views := s.Views()
	switch refused := out.Plan == nil; {
	case len(concerned) > 0:
	case refused && r.Command == "revert":
		concerned = standing(views)
	default:
		concerned = []string{defaultSet}
	}
	for _, id := range concerned { // a set that no one knows any more after its revert
		if !slices.ContainsFunc(views, func(v patcher.SetView) bool { return v.ID == id }) {
			views = append(views, patcher.SetView{ID: id, State: patcher.Absent})
		}
	}
	for _, v := range views {
		if v.Enabled || slices.Contains(concerned, v.ID) {
			r.set(v, envAfter(s, v))
		}
	}
	if len(s.Receipt.Sets) > 0 || s.Receipt.Last.Command != "" {
		r.Receipt = s.Receipt
	}
	if o.diff && out.Plan != nil {
		r.Diff = planDiff(out.Plan)
	}
}

// standing lists the sets that are here in some way, by whomever.
func standing(views []patcher.SetView) []string {
	var all []string
	for _, v := range views {
		if len(v.Files) > 0 && (v.State == patcher.Held || v.State == patcher.Partial || v.State == patcher.Foreign) {
			all = append(all, v.ID)
		}
	}
	return all
}

// envAfter tells what the interpreter will have from now on: what it had from
// elsewhere, or what the block says now. The one that was asked started before.
func envAfter(s *patcher.Site, v patcher.SetView) []verify.EnvState {
	after := *s
	after.In.Answer.Env = map[string]string{}
	for _, w := range s.Block.Wants(s.Root()) {
		after.In.Answer.Env[w.Name] = w.Value
	}
	all := states(&after, v)
	for i, e := range all {
		if e.Have != nil {
			all[i].From = "block"
		}
	}
	return all
}

// byHand reports entries that somebody made by hand. What the block sets first,
// such a line may set otherwise; verify tells what is in force.
func (p *place) byHand(r *Report, after *patcher.Site, ids []string) {
	var names []string
	for _, k := range pick(p.sets, ids) {
		for _, e := range k.Env {
			names = append(names, e.Name)
		}
	}
	for _, h := range after.ByHand(names) {
		r.find(verify.Finding{Code: "env-by-hand", Severity: "note", Path: h.Path, Line: h.Number, Message: fmt.Sprintf("%s:%d sets %s already, by hand: %s", h.Path, h.Number, h.Name, strings.TrimSpace(h.Text))})
	}
	if line, name := after.Besides(); line > 0 && !slices.ContainsFunc(r.Findings, func(f verify.Finding) bool { return f.Code == "env-by-hand" && f.Path == after.In.Site }) {
		r.find(verify.Finding{Code: "env-besides", Severity: "warning", Path: after.In.Site, Line: line, Message: fmt.Sprintf("%s:%d is about %s as well, behind the entry", after.In.Site, line, name), Hint: "sgpatch verify" + after.Flags() + " says what is in force"})
	}
}

// advice tells what the manifest knows of this release; what it says of all
// releases is for list -v.
func (p *place) advice(r *Report, ids []string) {
	release := p.site.In.Release
	for _, k := range pick(p.sets, ids) {
		if text, ok := spanText(k.Notes, release); ok {
			r.find(verify.Finding{Code: "release-note", Severity: "note", Message: k.ID + ": " + text})
		}
		if text, ok := spanText(k.Superseded, release); ok {
			r.find(verify.Finding{Code: "superseded", Severity: "note", Message: k.ID + ": " + text})
		}
	}
}

func spanText(spans []patchset.Span, release string) (string, bool) {
	for _, s := range spans {
		if release != "" && (s.From != "" || s.To != "") && s.Contains(release) {
			return s.Text, true
		}
	}
	return "", false
}
