package main

import (
	"context"
	"fmt"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/verify"
)

func revertCommand(ctx context.Context, o *options) (*Report, error) {
	r := newReport("revert")
	r.DryRun = o.dry
	p, err := o.open(ctx, r, install.Query{})
	if err != nil {
		return r, err
	}
	goal := patcher.Goal{Command: "revert", Revert: unique(o.args), Named: len(o.args) > 0, Told: o.site, Reason: o.reason, Result: o.result}
	p.copies(r)
	out, err := patcher.Converge(ctx, p.site, goal, patcher.Options{Dry: o.dry, Wait: o.wait})
	r.outcome(o, out)
	if err != nil {
		return r, err
	}
	if out.Plan.Empty() && !goal.Named && len(r.Findings) == 0 {
		r.find(verify.Finding{Code: "nothing-in-place", Severity: "note", Message: "nothing is in place in " + p.site.In.Root})
	}
	o.stillOn(r, p, out)
	if !goal.Named {
		goal.Revert = out.Plan.Receipt.Last.Sets
	}
	o.record(r, goal)
	if o.purge && !o.dry {
		return r, out.Site.Purge(o.wait)
	}
	return r, nil
}

// stillOn says so if a switch stays on after the revert, and why.
func (o *options) stillOn(r *Report, p *place, out patcher.Outcome) {
	for _, k := range p.sets {
		if _, still := out.Site.Receipt.Set(k.ID); still || out.Plan == nil {
			continue
		}
		for _, e := range k.Env {
			if !e.Switch {
				continue
			}
			for _, h := range out.Site.ByHand([]string{e.Name}) {
				r.find(verify.Finding{Code: "gate-stays-on", Severity: "warning", Path: h.Path, Line: h.Number,
					Message: fmt.Sprintf("%s stays set: by hand, in %s:%d", e.Name, h.Path, h.Number), Hint: "take that line out"})
			}
			if given, ok := lookupEnv(e.Name); ok && verify.On(given) {
				r.find(verify.Finding{Code: "gate-stays-on", Severity: "warning", Message: fmt.Sprintf("%s=%s stays set: it is in the environment of this command", e.Name, given), Hint: "unset " + e.Name})
			}
		}
	}
}
