package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"sgpatch/patcher"
	"sgpatch/verify"
)

// warned tells what speaks against sets that are not in place yet: a negative
// result on record here, or a published one for such hardware. Of several
// results the last counts.
func (p *place) warned(r *Report, ids []string) (all []verify.Finding) {
	entries, _, err := readHistory(`"result":`)
	if err != nil {
		entries = nil // it is a convenience
	}
	gpus := hardware()
	for _, s := range pick(p.sets, ids) {
		if _, in := p.site.Receipt.Set(s.ID); in {
			continue
		}
		if bad := lastBad(entries, r, s.ID); bad != "" {
			all = append(all, verify.Finding{Code: "tried-before", Severity: "warning", Message: s.ID + ": " + bad, Hint: "sgpatch history"})
		}
		for _, x := range s.Results {
			if x.Outcome == "worse" && onSuch(gpus, x) {
				all = append(all, verify.Finding{Code: "published-result", Severity: "warning", Message: fmt.Sprintf("%s: on %s it gave %s (%s)", s.ID, x.Hardware, x.Text, x.Source), Hint: "sgpatch list -v"})
			}
		}
	}
	return all
}

// lastBad is what the last result of a set on this machine says against it.
func lastBad(entries []HistoryEntry, r *Report, id string) (bad string) {
	for _, e := range entries {
		if e.Host != r.Host || e.Result == "" {
			continue
		}
		when := e.Time.UTC().Format("2006-01-02")
		switch {
		case e.Command == "revert" && contains(e.Sets, id) && e.Exit == exitOK:
			bad = "it was taken out here on " + when + because(e.Reason, e.Result)
		case e.Command == "trial" && contains(e.Sets, id):
			bad = ""
			if verdict, why, _ := strings.Cut(e.Result, ":"); contains([]string{"worse", "no-difference"}, verdict) {
				bad = "a trial said on " + when + ": " + verdict + "," + why
			}
		case e.Command == "preflight" && id == defaultSet && e.Install != nil && r.Install != nil && e.Install.Root == r.Install.Root:
			bad = ""
			if verdict, why, _ := strings.Cut(e.Result, ":"); contains([]string{"not-better", "wrong-data", "hang"}, verdict) {
				bad = "preflight said on " + when + ": " + verdict + "," + why
			}
		}
	}
	return bad
}

// asking is how a person is asked; nil where there is none.
var asking = func() io.Reader {
	if onTerminal(os.Stdin) && onTerminal(os.Stderr) {
		return os.Stdin
	}
	return nil
}

// confirm asks the person whether to go on in spite of warnings. In a script, and
// with --yes, it goes on.
func (o *options) confirm(ctx context.Context, warnings []verify.Finding) error {
	in := asking()
	if len(warnings) == 0 || in == nil || o.yes || o.dry || o.json {
		return nil
	}
	p := printer{w: os.Stderr, colour: o.colour(os.Stderr)}
	p.findings(warnings)
	fmt.Fprint(os.Stderr, "Apply all the same? [y/N] ")
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		said <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-said:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return &patcher.RefusedError{Code: "not-confirmed", Message: "not applied, as you said; nothing was changed", Hint: "sgpatch history"}
	case <-ctx.Done():
		return errInterrupted
	}
}
