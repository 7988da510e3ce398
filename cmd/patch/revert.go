package main

import (
	"context"
	"errors"
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
	goal := patcher.Goal{Command: "revert", Revert: unique(o.args), Named: len(o.args) > 0, Told: o.told(), Reason: o.reason, Result: o.result}
	p.copies(r)
	if o.purge {
		if err := p.nothingElse(goal); err != nil {
			return r, err
		}
	}
	out, err := patcher.Converge(ctx, p.site, goal, patcher.Options{Dry: o.dry, Wait: o.wait})
	r.outcome(o, out)
	if err != nil {
		return r, err
	}
	if out.Plan.Empty() && !goal.Named && len(r.Findings) == 0 {
		r.find(verify.Finding{Code: "nothing-in-place", Severity: "note", Message: "nothing is in place in " + p.site.In.Root})
	}
	o.stillOn(ctx, r, p, out)
	if !goal.Named {
		goal.Revert = out.Plan.Receipt.Last.Sets
	}
	o.record(r, goal)
	if o.purge && out.Site.HasRecords() {
		return r, o.takeRecords(ctx, r, out.Site)
	}
	return r, nil
}

// takeRecords takes the records away, or says that it would.
func (o *options) takeRecords(ctx context.Context, r *Report, s *patcher.Site) error {
	verb := "would be taken away"
	if !o.dry {
		verb = "are taken away"
		gone, err := o.takeAway(ctx, s)
		if err != nil {
			return &purgeError{s.In.Root, err}
		}
		if !gone {
			r.find(verify.Finding{Code: "purge", Severity: "warning", Path: s.In.Root, Message: "another command uses the records in " + s.In.Root + "/.sgpatch: they stay", Hint: "sgpatch status" + s.Flags()})
			return nil
		}
	}
	r.find(verify.Finding{Code: "purged", Severity: "note", Path: s.In.Root, Message: "the records in " + s.In.Root + "/.sgpatch " + verb})
	return nil
}

// takeAway purges, and looks again where another command did something of its own
// meanwhile. It returns false where that needs the records.
func (o *options) takeAway(ctx context.Context, s *patcher.Site) (gone bool, err error) {
	for range maxJudgings {
		err = s.Purge(ctx, o.wait)
		var refused *patcher.RefusedError
		if !errors.As(err, &refused) {
			return err == nil, err
		}
		if s, err = patcher.Open(s.In, nil); err != nil || len(s.Receipt.Sets) > 0 {
			return false, err
		}
	}
	return false, nil
}

// purgeError says that the patches are out and the records are not.
type purgeError struct {
	root string
	err  error
}

func (e *purgeError) Error() string {
	return fmt.Sprintf("the sets are out, but the records in %s/.sgpatch could not be taken away: %v", e.root, e.err)
}

// nothingElse refuses to take records away that other sets still need.
func (p *place) nothingElse(g patcher.Goal) error {
	for _, e := range p.site.Receipt.Sets {
		if g.Named && !contains(g.Revert, e.ID) {
			return &patcher.RefusedError{Code: "in-place", Path: p.site.In.Root, Message: fmt.Sprintf("%s is still in place in %s; its records cannot be taken away", e.ID, p.site.In.Root), Hint: "sgpatch revert --all --purge" + p.site.Flags()}
		}
	}
	return nil
}

// stillOn says so if a switch stays on after the revert, and why.
func (o *options) stillOn(ctx context.Context, r *Report, p *place, out patcher.Outcome) {
	before := len(r.Findings)
	for _, name := range p.switches(out.Site) {
		for _, h := range out.Site.ByHand([]string{name}) {
			r.find(verify.Finding{Code: "gate-stays-on", Severity: "warning", Path: h.Path, Line: h.Number,
				Message: fmt.Sprintf("%s stays set: by hand, in %s:%d", name, h.Path, h.Number), Hint: "take that line out"})
		}
		if given, ok := lookupEnv(name); ok && verify.On(given) {
			r.find(verify.Finding{Code: "gate-stays-on", Severity: "warning", Message: fmt.Sprintf("%s=%s stays set: it is in the environment of this command", name, given), Hint: "unset " + name})
		}
	}
	if len(r.Findings) == before && len(out.Changed) > 0 && !o.dry && p.site.In.Asked {
		o.askAgain(ctx, r, p, out)
	}
}

// askAgain has the interpreter say whether a switch is on although nothing was
// found that sets it: a .pth file, or a module that one imports, may do that.
func (o *options) askAgain(ctx context.Context, r *Report, p *place, out patcher.Outcome) {
	a, err := install.Ask(ctx, install.Query{Python: p.site.In.Python})
	if err != nil {
		return // it did answer before; what was to be done is done
	}
	for _, name := range p.switches(out.Site) {
		shared := false // another root has it in the same file
		for _, e := range out.Site.Block.Entries {
			shared = shared || e.Name == name
		}
		if value := a.Env[name]; verify.On(value) && !shared {
			r.find(verify.Finding{Code: "gate-stays-on", Severity: "warning", Message: fmt.Sprintf("%s=%s stays set: by something that runs when %s starts, as a .pth file", name, value, p.site.In.Python), Hint: "sgpatch status" + out.Site.Flags()})
		}
	}
}

// switches lists those of all sets that are not in place after a revert; what
// the receipt had before it counts, too.
func (p *place) switches(after *patcher.Site) []string {
	var all []string
	for _, k := range p.sets {
		for _, e := range k.Env {
			if _, still := after.Receipt.Set(k.ID); e.Switch && !still {
				all = append(all, e.Name)
			}
		}
	}
	for _, s := range p.site.Receipt.Sets {
		for _, e := range s.Env {
			if _, still := after.Receipt.Set(s.ID); e.Switch && !still {
				all = append(all, e.Name)
			}
		}
	}
	return unique(all)
}
