package main

import (
	"context"
	"fmt"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/patcher/patchset"
	"sgpatch/verify"
)

func statusCommand(ctx context.Context, o *options) (*Report, error) {
	r := newReport("status")
	p, err := o.open(ctx, r, install.Query{})
	if err != nil {
		return r, err
	}
	for _, id := range o.args {
		if err := p.exists(id); err != nil {
			return r, err
		}
	}
	for _, v := range p.site.Views() {
		if len(o.args) == 0 || contains(o.args, v.ID) {
			r.set(v, p.inForce(v))
		}
	}
	if s := p.site; len(s.Receipt.Sets) > 0 || s.Receipt.Last.Command != "" {
		r.Receipt = s.Receipt
	}
	for _, f := range verify.Whole(p.site) {
		if f.Severity == "error" {
			f.Severity = "warning" // status tells; verify judges
		}
		r.find(f)
	}
	if p.site.BlockErr != nil {
		r.find(verify.Finding{Code: "damaged-block", Severity: "warning", Path: p.site.In.Site, Message: fmt.Sprintf("%s: %v", p.site.In.Site, p.site.BlockErr)})
	}
	return r, nil
}

// exists says so if a set is neither known nor in place.
func (p *place) exists(id string) error {
	if _, ok := p.site.Known(id); ok {
		return nil
	}
	if _, ok := p.site.Receipt.Set(id); ok {
		return nil
	}
	return &patcher.UnknownSetError{ID: id, Known: ids(p.sets)}
}

// inForce is a set's variables as the interpreter has them, or without one as
// the block has them.
func (p *place) inForce(v patcher.SetView) []verify.EnvState {
	if p.site.In.Asked {
		return states(p.site, v)
	}
	return envAfter(p.site, v)
}

// listEntry is one set in the entries of `list`.
type listEntry struct {
	ID       string             `json:"id"`
	Version  string             `json:"version"`
	Title    string             `json:"title"`
	Releases []string           `json:"releases"`
	Fits     string             `json:"fits,omitempty"` // the variant for this install
	State    string             `json:"state,omitempty"`
	Env      []patcher.EnvValue `json:"env"`
	Results  []patchset.Result  `json:"results,omitempty"`
	Variants int                `json:"variants"`
	Notes    []string           `json:"notes,omitempty"`
}

// listCommand works without an install, too: then no set says whether it fits.
func listCommand(ctx context.Context, o *options) (*Report, error) {
	r := newReport("list")
	sets, _, err := o.loadSets()
	if err != nil {
		return r, err
	}
	var site *patcher.Site
	p, err := o.open(ctx, r, install.Query{})
	if err == nil {
		site = p.site
	} else {
		r.find(verify.Finding{Code: "no-install", Severity: "note", Message: err.Error(), Hint: hint(err)})
	}
	for _, k := range sets {
		e := listEntry{ID: k.ID, Version: k.Version, Title: k.Title, Releases: releases(k), Variants: len(k.Variants), Results: k.Results, Env: []patcher.EnvValue{}}
		for _, n := range k.Notes {
			e.Notes = append(e.Notes, n.Text)
		}
		for _, v := range k.Env {
			e.Env = append(e.Env, patcher.EnvValue{Name: v.Name, Value: v.Value, Switch: v.Switch})
		}
		if site != nil {
			v := site.View(k.ID)
			e.Fits, e.State = v.Variant, string(v.State)
			r.set(v, p.inForce(v))
		}
		r.Entries = append(r.Entries, e)
	}
	return r, nil
}

func releases(k patchset.Set) []string {
	all := []string{}
	for _, row := range k.Rows {
		if len(all) == 0 || all[len(all)-1] != row.Release {
			all = append(all, row.Release)
		}
	}
	return all
}

func showCommand(ctx context.Context, o *options) (*Report, error) {
	r := newReport("show")
	if len(o.args) != 1 {
		return r, usagef("show takes the name of one set; sgpatch list has them")
	}
	id := o.args[0]
	if o.release != "" {
		return r, o.showRelease(r, id)
	}
	p, err := o.open(ctx, r, install.Query{})
	if err != nil {
		return r, err
	}
	k, ok := p.site.Known(id)
	if !ok {
		return r, &patcher.UnknownSetError{ID: id, Known: ids(p.sets)}
	}
	v := p.site.View(id)
	r.set(v, p.inForce(v))
	r.Diff, err = p.site.Show(id)
	if err == nil && r.Diff == "" {
		r.text = entriesText(k)
	}
	return r, err
}

func (o *options) showRelease(r *Report, id string) error {
	sets, _, err := o.loadSets()
	if err != nil {
		return err
	}
	found := pick(sets, []string{id})
	if len(found) == 0 {
		return &patcher.UnknownSetError{ID: id, Known: ids(sets)}
	}
	k := found[0]
	if reason, bad := k.UnsupportedReason(o.release); bad {
		return &patcher.RefusedError{Code: "unsupported", Message: fmt.Sprintf("SGLang %s is not supported by %s: %s", o.release, id, reason), Hint: "sgpatch list"}
	}
	for _, row := range k.Rows {
		if row.Release == o.release {
			v, _ := k.Variant(row.Variant)
			r.Diff = string(v.Text)
			return nil
		}
	}
	if len(k.Variants) == 0 {
		r.text = entriesText(k)
		return nil
	}
	return &patcher.RefusedError{Code: "no-release", Message: fmt.Sprintf("%s has no release %s in its table", id, o.release), Hint: "sgpatch list -v"}
}

func ids(sets []patchset.Set) []string {
	var all []string
	for _, s := range sets {
		all = append(all, s.ID)
	}
	return all
}

func entriesText(k patchset.Set) string {
	text := ""
	for _, e := range k.Env {
		if !e.Optional {
			text += e.Name + "=" + e.Value + "\n"
		}
	}
	return text
}
