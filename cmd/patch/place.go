package main

import (
	"context"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/patcher/patchset"
	"sgpatch/verify"
)

// place is what every command works on: the sets and one install.
type place struct {
	sets []patchset.Set
	mine map[string]bool // ids of the program's own sets
	site *patcher.Site
}

// open finds the install that the flags mean and reads what is in place. The
// report names the install even if what follows fails.
func (o *options) open(ctx context.Context, r *Report, q install.Query) (*place, error) {
	var p place
	loaded := make(chan error, 1)
	go func() { // while the interpreter starts
		var err error
		p.sets, p.mine, err = o.loadSets()
		loaded <- err
	}()
	q.Orphan = patcher.Orphan
	in, err := o.find(ctx, q)
	if lerr := <-loaded; lerr != nil {
		return nil, lerr
	}
	if err != nil {
		return nil, err
	}
	r.install(in)
	if p.site, err = patcher.Open(in, p.sets); err == nil {
		p.site.Brief = !o.json && !o.verbose
	}
	return &p, err
}

func (o *options) find(ctx context.Context, q install.Query) (install.Install, error) {
	if o.python != "" {
		q.Python = o.python
	}
	switch {
	case o.root != "" && o.python != "":
		return install.FindAt(ctx, q, o.root)
	case o.root != "":
		site := o.site
		if site == "" && (o.command.name == "verify" || o.command.name == "status") {
			// looking may follow the receipt; what is to be changed has to be named
			site = patcher.RecordedEntry(o.root)
		}
		in, err := install.AtRoot(o.root, site)
		if err != nil && patcher.Names(in.Site, in.Root) {
			in.Gone, err = true, nil // uninstalled, and the records with it: the entry is left
		}
		return in, err
	}
	return install.Find(ctx, q)
}

// copies reports the other copies of sglang that the interpreter sees.
func (p *place) copies(r *Report) {
	for _, f := range verify.Whole(p.site) {
		if f.Code == "copies" || f.Code == "python" {
			f.Severity = "warning"
			r.find(f)
		}
	}
}
