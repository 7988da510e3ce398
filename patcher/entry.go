package patcher

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sgpatch/patcher/block"
	"sgpatch/patcher/install"
	"sgpatch/patcher/internal/txn"
	"sgpatch/patcher/patchset"
)

type blockVar = block.Var

// entry plans the block in the sitecustomize that is imported, and takes this
// root out of one that used to be.
func (w *planner) entry() error {
	left, err := w.leaveOld()
	if err != nil {
		return err
	}
	s := w.s
	want, err := w.wanted()
	if err != nil {
		return err
	}
	mine := len(s.Block.Wants(s.root)) > 0
	w.next.Entry = left
	if len(want) == 0 && !mine && !w.strangers() {
		if s.BlockErr != nil && w.mayBeIn() {
			return w.damagedBlock()
		}
		return nil
	}
	switch {
	case s.BlockErr != nil:
		return w.damagedBlock()
	case len(want) > 0 && s.In.SiteErr != nil:
		return &RefusedError{Code: "sitecustomize", Path: s.In.Site, Message: s.In.SiteErr.Error(), Hint: "mend that file, or put only the code in place: sgpatch apply --no-env" + s.Flags()}
	}
	return w.rewrite(want)
}

// mayBeIn says whether a block that cannot be read may have an entry of what goes:
// the receipt says so, or there is none to ask and our code is taken out.
func (w *planner) mayBeIn() bool {
	s := w.s
	if s.entryAt != "" && s.Receipt.Entry.Real == s.entryAt {
		return true
	}
	return len(s.Receipt.Sets) == 0 && w.g.Command == "revert" && len(w.p.Writes) > 0
}

func (w *planner) damagedBlock() error {
	s := w.s
	re := &RefusedError{Code: "damaged-block", Path: s.In.Site, Message: fmt.Sprintf("%s: %v", s.In.Site, s.BlockErr), Hint: "take the lines between sgpatch's markers, and the markers, out by hand; then run this again"}
	var de *block.DamagedError
	if errors.As(s.BlockErr, &de) {
		re.Line = de.Line
	} else {
		re.Code, re.Hint = "unreadable", "make it readable, then: sgpatch "+w.g.Command+s.Flags()
	}
	return re
}

// wanted lists what this root shall have in the block. A receipt may have come
// with somebody's image: a name that neither a known set nor the block itself
// has is not written anywhere.
func (w *planner) wanted() ([]block.Var, error) {
	drop := map[string]bool{}
	for _, id := range w.g.Revert {
		w.namesOf(id, drop)
	}
	for _, e := range w.next.Sets {
		if e.NoEnv {
			w.namesOf(e.ID, drop)
		}
	}
	have := w.s.Block.Wants(w.s.root)
	if len(have) > 0 || len(w.next.Env()) > 0 || w.strangers() { // the block is written anyway
		have = append(have, w.s.adopted()...)
	}
	var all []block.Var
	for _, v := range w.next.Env() {
		if !w.allowed(v.Name, have) {
			w.p.note(Finding{Code: "unknown-entry", Severity: "warning", Message: fmt.Sprintf("the receipt asks for %s, which no known set has; it is not written", v.Name)})
			continue
		}
		i := slices.IndexFunc(all, func(x block.Var) bool { return x.Name == v.Name })
		if i >= 0 && all[i].Value != v.Value {
			return nil, &RefusedError{Code: "conflict", Path: w.s.In.Site, Message: fmt.Sprintf("%s: two sets want different values of %s: %q and %q", w.s.In.Site, v.Name, all[i].Value, v.Value), Hint: "give both the same one: --env " + v.Name + "=VALUE, or take one set out: sgpatch revert SET" + w.s.Flags()}
		}
		if i < 0 {
			all = append(all, v)
		}
	}
	for _, v := range have {
		// an entry of which no receipt speaks stays, unless everything is to go
		if !drop[v.Name] && (w.g.Named || len(w.g.Apply) > 0) && !slices.ContainsFunc(all, func(x block.Var) bool { return x.Name == v.Name }) {
			all = append(all, v)
		}
	}
	return all, nil
}

func (w *planner) namesOf(id string, set map[string]bool) {
	k, _ := w.s.Known(id)
	for _, e := range k.Env {
		set[e.Name] = true
	}
	e, _ := w.s.Receipt.Set(id)
	for _, v := range e.Env {
		set[v.Name] = true
	}
}

func (w *planner) allowed(name string, have []block.Var) bool {
	return w.s.knows(name) || slices.ContainsFunc(have, func(v block.Var) bool { return v.Name == name })
}

// knows says whether a set that is at hand has an entry of this name.
func (s *Site) knows(name string) bool {
	return slices.ContainsFunc(s.known, func(k patchset.Set) bool {
		return slices.ContainsFunc(k.Env, func(e patchset.EnvEntry) bool { return e.Name == name })
	})
}

// rewrite plans the sitecustomize with this root's entries.
func (w *planner) rewrite(want []block.Var) error {
	s := w.s
	real, err := install.Resolve(s.In.Site, s.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b, err := s.Block.Keep(func(root string) bool { return root == s.root || alive(root, real) }).With(s.root, want)
	if err != nil {
		return &RefusedError{Code: "conflict", Path: s.In.Site, Message: fmt.Sprintf("%s: %v", s.In.Site, err), Hint: "apply both with the same value (--env NAME=VALUE)"}
	}
	b.Made = b.Made || s.Entry == nil
	text, err := block.Set(s.Entry, b)
	if err != nil {
		return &RefusedError{Code: "sitecustomize", Path: s.In.Site, Message: fmt.Sprintf("%s: %v", s.In.Site, err)}
	}
	if len(want) > 0 {
		w.next.Entry = EntryPlace{Path: s.In.Site, Real: real, Digest: patchset.DigestOf(text)}
		w.next.Entry.Before, w.next.Entry.Mtime = s.entryBefore(real)
		w.remarks(text)
	}
	return w.putEntry(s.In.Site, real, s.Entry, text, s.Block.Made && len(b.Entries) == 0)
}

// entryBefore is the sitecustomize before there was a block in it, as far as
// this install knows.
func (s *Site) entryBefore(real string) (patchset.Digest, int64) {
	if len(s.Block.Entries) == 0 && s.Entry != nil {
		return patchset.DigestOf(s.Entry), s.entryTime
	}
	if was := s.Receipt.Entry; was.Real == real {
		return was.Before, was.Mtime
	}
	return "", 0
}

// putEntry plans a sitecustomize; one that we made and that has nothing else in
// it is removed.
func (w *planner) putEntry(path, real string, old, text []byte, made bool) error {
	compiled := install.Bytecode(path, w.s.In.Answer.PycachePrefix)
	wr := txn.Write{Path: real, New: string(patchset.DigestOf(text)), Data: text, Perm: 0o644}
	if old != nil {
		wr.Old = string(patchset.DigestOf(old))
	}
	if bytes.Equal(old, text) && (old == nil) == (text == nil) {
		names := w.next.names()
		if wr.Stale = hides(path, compiled, names); len(wr.Stale) == 0 || len(names) == 0 {
			return nil
		}
		return w.add(wr, path, old)
	}
	if was := w.s.Receipt.Entry; was.Mtime != 0 && wr.New == string(was.Before) {
		wr.Mtime = time.Unix(0, was.Mtime)
	}
	if made && len(text) == 0 {
		wr.New, wr.Data = "", nil
	}
	wr.Stale = compiled
	return w.add(wr, path, old)
}

// remarks says what else an edit of this file concerns.
func (w *planner) remarks(text []byte) {
	s := w.s
	if bytes.Equal(text, s.Entry) {
		return
	}
	a := s.In.Answer
	if s.In.Asked && s.In.HasSite && a.Prefix != a.BasePrefix && !strings.HasPrefix(s.In.Site, a.Prefix+"/") {
		w.p.note(w.shared())
	}
	if real := w.next.Entry.Real; conffile(real) {
		w.p.note(Finding{Code: "conffile", Severity: "note", Path: real, Message: real + " belongs to a Debian package; its upgrades will ask about the change: keep it, or revert before"})
	}
	if !s.In.Asked {
		w.p.note(Finding{Code: "unproved-entry", Severity: "warning", Path: s.In.Site, Message: "it was not checked whether " + s.In.Site + " is imported; name the interpreter with --python, or another file with --sitecustomize"})
	}
}

// shared says who else gets the variables of an entry in a file of the base.
func (w *planner) shared() Finding {
	f := Finding{Code: "shared", Severity: "note", Path: w.s.In.Site}
	var names []string
	for _, e := range w.next.Sets {
		for _, v := range e.Env {
			names = append(names, v.Name)
			if !v.Switch {
				f.Severity = "warning" // it means something to other programs as well
			}
		}
	}
	f.Message = fmt.Sprintf("%s is shared by every environment of this Python: all of them get %s", w.s.In.Site, strings.Join(names, ", "))
	return f
}

// conffile says whether dpkg keeps track of edits to a file.
func conffile(path string) bool {
	if !strings.HasPrefix(path, "/etc/") {
		return false
	}
	status, err := os.ReadFile("/var/lib/dpkg/status")
	return err == nil && bytes.Contains(status, []byte("\n "+path+" "))
}

// alive says whether a root of a shared block still stands behind it. A copied
// sitecustomize carries strangers.
func alive(root, file string) bool {
	text, _, err := txn.Read(root)
	if err != nil || text == nil {
		return false
	}
	r, err := parseReceipt(root, text)
	return err == nil && r.Entry.Real == file && len(r.Env()) > 0
}

// leaveOld withdraws this root from a sitecustomize that the receipt names and
// that is not the one imported now. It is touched only where it lies inside the
// root, is on the interpreter's path, or was named by the operator.
//
// What it had to leave is returned, so that a revert remembers the place.
func (w *planner) leaveOld() (left EntryPlace, err error) {
	s, old := w.s, w.s.Receipt.Entry
	if old.Real == "" || old.Real == s.entryAt {
		return left, nil
	}
	if _, err := os.Lstat(old.Real); errors.Is(err, fs.ErrNotExist) {
		return left, nil
	}
	if s.mayTouch(old.Real, w.g.Told) != nil {
		f := Finding{Code: "other-sitecustomize", Severity: "warning", Path: old.Path, Message: fmt.Sprintf("an older entry stands in %s, which this interpreter does not import; it stays there", old.Path), Hint: "take the lines between sgpatch's markers in that file out by hand"}
		if len(w.next.Sets) == 0 {
			f.Hint = "sgpatch revert --sitecustomize " + Quote(old.Path) + s.Flags()
		}
		w.p.note(f)
		return old, nil
	}
	text, err := txn.ReadFile(old.Real, maxSource)
	if errors.Is(err, fs.ErrNotExist) {
		return left, nil
	}
	if err != nil {
		return left, &RefusedError{Code: "unreadable", Path: old.Path, Message: fmt.Sprintf("%s, an older sitecustomize of this install, cannot be read: %v", old.Path, err), Hint: "remove it, or make it readable; then run this again"}
	}
	b, err := block.Get(text)
	if err != nil {
		return left, &RefusedError{Code: "damaged-block", Path: old.Path, Message: fmt.Sprintf("%s: %v", old.Path, err), Hint: "take the lines between sgpatch's markers, and the markers, out by hand; then run this again"}
	}
	if !slices.Contains(b.Roots(), s.root) {
		return left, nil
	}
	rest := b.Without(s.root)
	out, err := block.Set(text, rest)
	if err != nil {
		return left, err
	}
	return left, w.putEntry(old.Path, old.Real, text, out, b.Made && len(rest.Entries) == 0)
}

// mayTouch says whether a record may name this file as a sitecustomize.
func (s *Site) mayTouch(real, told string) error {
	if real == s.entryAt {
		return nil
	}
	for _, p := range append(slices.Clone(s.In.Answer.OtherSites), told) {
		if p == "" {
			continue
		}
		if r, err := install.Resolve(p, s.root); (err == nil || errors.Is(err, fs.ErrNotExist)) && r == real {
			return nil
		}
	}
	if s.inside(real) && filepath.Base(real) == "sitecustomize.py" {
		return nil
	}
	return errors.New("that is not a sitecustomize of this install")
}
