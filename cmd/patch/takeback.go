package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"sgpatch/verify"
)

// lookBefore notes which sets are in place on a host before apply: only what
// this run applies may be taken back.
func (f *fleet) lookBefore(ctx context.Context, i int) *Report {
	request, err := f.o.requestFor("status", nil)
	if err != nil {
		r := f.newReport(i)
		r.fail(err)
		return r
	}
	r := f.send(ctx, i, request)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before == nil {
		f.before = map[string][]string{}
	}
	here := []string{}
	for _, s := range r.Sets {
		if s.enabled || s.State != "absent" {
			here = append(here, s.ID)
		}
	}
	f.before[f.names[i]] = here
	r.Command = "apply"
	return r
}

// takeBack reverts, on every host that this run changed, the sets that were
// not there before, if a host failed.
func (f *fleet) takeBack(ctx context.Context) {
	bad := f.failed()
	if bad == "" || ctx.Err() != nil {
		return
	}
	slots := make(chan struct{}, f.o.fleet.parallel)
	var running sync.WaitGroup
	for i, r := range f.reports {
		if r.Exit != exitOK || len(r.Changed) == 0 {
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			f.reports[i] = f.back(ctx, i, r, bad)
			<-slots
		})
	}
	running.Wait()
}

// back takes one host back: exit 5 is failed, and everything put back; 6 is
// failed, and not all could be put back.
func (f *fleet) back(ctx context.Context, i int, applied *Report, bad string) *Report {
	ids := f.o.args
	if len(ids) == 0 {
		ids = []string{defaultSet}
	}
	ids = slices.DeleteFunc(unique(ids), func(id string) bool { return slices.Contains(f.before[f.names[i]], id) })
	if len(ids) == 0 {
		applied.find(verify.Finding{Code: "not-taken-back", Severity: "warning", Message: fmt.Sprintf("%s failed; the sets were in place on %s before, and stay as this run left them", bad, f.names[i])})
		return applied
	}
	request, err := f.o.requestFor("revert", append([]string{"--reason=" + bad + " failed"}, ids...))
	r := f.newReport(i)
	if err == nil {
		r = f.send(ctx, i, request)
	}
	switch {
	case err != nil:
		r.fail(err)
		r.Exit = exitBroken
	case r.Exit == exitOK:
		r.Exit, r.Error = exitFailed, fmt.Sprintf("%s failed; what was applied to %s is taken back", bad, f.names[i])
		r.Hint = "mend " + bad + ", then apply again"
		r.find(verify.Finding{Code: "taken-back", Severity: "error", Message: r.Error, Hint: r.Hint})
	default:
		r.Exit, r.Error = exitBroken, fmt.Sprintf("%s failed, and what was applied to %s could not be taken back: %s", bad, f.names[i], orDash(r.Error))
	}
	r.Command = "apply"
	return r
}
