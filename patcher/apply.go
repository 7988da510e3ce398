package patcher

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sgpatch/patcher/internal/txn"
	"sgpatch/patcher/patchset"
)

// apply plans for the enabled sets and those of the goal together.
func (w *planner) apply() error {
	for _, id := range w.g.Apply {
		if _, ok := w.s.Known(id); !ok {
			return &UnknownSetError{id, w.s.ids()}
		}
	}
	if err := w.values(); err != nil {
		return err
	}
	if w.s.In.Gone {
		return &RefusedError{Code: "no-install", Path: w.s.In.Root, Message: "there is no SGLang in " + w.s.In.Root + " any more", Hint: "pip install sglang, or: sgpatch revert" + w.s.Flags()}
	}
	for _, e := range slices.Clone(w.next.Sets) {
		if !slices.Contains(w.g.Apply, e.ID) {
			if err := w.keep(e); err != nil {
				return err
			}
		}
	}
	for _, id := range w.g.Apply {
		k, _ := w.s.Known(id)
		if err := w.enable(k); err != nil {
			return err
		}
	}
	if err := w.compose(); err != nil {
		return err
	}
	w.next.Python = w.s.python()
	if in := w.s.In; in.Editable && !in.Told && len(w.take) > 0 {
		w.p.note(Finding{Code: "shared-root", Severity: "note", Path: in.Root, Message: in.Root + " is not this environment's own: every environment that imports sglang from there gets the code"})
	}
	return nil
}

// values checks that --env names entries of the sets at hand.
func (w *planner) values() error {
	for name := range w.g.Env {
		found := false
		for _, id := range w.g.Apply {
			k, _ := w.s.Known(id)
			found = found || slices.ContainsFunc(k.Env, func(e patchset.EnvEntry) bool { return e.Name == name })
		}
		if !found {
			return &UnknownEnvError{name}
		}
	}
	return nil
}

// keep takes along a set that is in place already: as it was applied if the
// contents are still those, otherwise worked out anew.
func (w *planner) keep(e Enabled) error {
	files, err := w.s.diff(e)
	if err != nil {
		return err
	}
	same := true
	for _, f := range files {
		base, err := w.baseOf(f.Path)
		if err != nil {
			return err
		}
		t, _ := w.s.Receipt.File(f.Path)
		same = same && patchset.DigestOf(base) == t.Pristine
	}
	if same {
		w.lay(e.ID, files, false)
		return nil
	}
	k, ok := w.s.Known(e.ID)
	if !ok {
		return &RefusedError{Code: "unknown-set", Path: w.s.In.Root, Message: fmt.Sprintf("the set %s is in place, was taken away by a reinstall, and is not known to this run", e.ID), Hint: "name its folder with --patches, or: sgpatch revert " + e.ID + w.s.Flags()}
	}
	return w.enable(k)
}

// lay takes the hunks of a set along; sure says that they are known to fit the bases.
func (w *planner) lay(id string, files []patchset.File, sure bool) {
	for _, f := range files {
		if sure {
			f = f.Sure()
		}
		w.take[f.Path] = append(w.take[f.Path], placed{id, f})
	}
}

// enable chooses the variant of a set and puts it among the sets to be.
func (w *planner) enable(k patchset.Set) error {
	for _, e := range w.next.Sets {
		other, _ := w.s.Known(e.ID)
		if e.ID != k.ID && (slices.Contains(k.Conflicts, e.ID) || slices.Contains(other.Conflicts, k.ID)) {
			hint := "apply one of them: sgpatch apply " + k.ID + w.s.Flags()
			if _, held := w.s.Receipt.Set(e.ID); held {
				hint = "sgpatch revert " + e.ID + w.s.Flags()
			}
			return &RefusedError{Code: "conflict", Path: w.s.In.Root, Message: fmt.Sprintf("%s: %s and %s exclude each other", w.s.In.Root, k.ID, e.ID), Hint: hint}
		}
	}
	was, held := w.s.Receipt.Set(k.ID)
	e := Enabled{ID: k.ID, Version: k.Version, NoEnv: w.g.NoEnv || slices.Contains(w.g.Bare, k.ID), Applied: time.Now().UTC().Truncate(time.Second), Reason: w.g.Reason, Void: k.Void, Shadows: k.Shadows}
	if held {
		e.Applied = was.Applied
		if w.g.Reason == "" {
			e.Reason = was.Reason
		}
		if !slices.Contains(w.g.Apply, k.ID) {
			e.NoEnv = was.NoEnv
		}
	}
	e.Env = w.env(k, was)
	if len(k.Variants) > 0 {
		v, listed, err := w.choose(k)
		if err != nil {
			return err
		}
		e.Variant, e.Listed, e.Diff = v.Name, listed, patchset.DigestOf(v.Text)
		w.p.Keep = append(w.p.Keep, v.Text)
		w.lay(k.ID, v.Files, listed && k.Tried)
	}
	i := slices.IndexFunc(w.next.Sets, func(x Enabled) bool { return x.ID == k.ID })
	if i >= 0 {
		w.next.Sets[i] = e
	} else {
		w.next.Sets = append(w.next.Sets, e)
	}
	return nil
}

// env works out a set's values: asked for now, set earlier, or the default.
func (w *planner) env(k patchset.Set, was Enabled) []EnvValue {
	var all []EnvValue
	for _, d := range k.Env {
		v, ok := w.g.Env[d.Name]
		if !ok {
			if i := slices.IndexFunc(was.Env, func(x EnvValue) bool { return x.Name == d.Name }); i >= 0 {
				v, ok = was.Env[i].Value, true
			}
		}
		if !ok && !d.Optional {
			v, ok = d.Value, true
		}
		if ok {
			all = append(all, EnvValue{d.Name, v, d.Switch})
		}
	}
	return all
}

// choose finds the variant for the contents at hand: by the release table, or
// else the one variant that fits exactly and passes the behaviour check.
func (w *planner) choose(k patchset.Set) (patchset.Variant, bool, error) {
	have := map[string]patchset.Digest{}
	for _, p := range k.Paths() {
		if err := w.unpatched(k, p); err != nil {
			return patchset.Variant{}, false, err
		}
		base, err := w.baseOf(p)
		if err != nil {
			return patchset.Variant{}, false, err
		}
		have[p] = ""
		if w.s.file(p).have != "" {
			have[p] = patchset.DigestOf(base)
		}
	}
	if m := match(k, have); m.release != "" && m.state == Absent {
		v, _ := k.Variant(m.variant)
		if err := w.proved(k, v, m.rows); err != nil {
			return v, true, err
		}
		return v, true, nil
	}
	v, err := w.unlisted(k)
	return v, false, err
}

// unpatched adopts our bytes without a receipt (an image layer, a copied tree):
// the base is what reversing the hunks gives, if the table knows it.
func (w *planner) unpatched(k patchset.Set, path string) error {
	f := w.s.file(path)
	if _, tracked := w.s.Receipt.File(path); tracked || w.base[path] != nil {
		return nil
	}
	rows := k.PatchedRows(path, f.have)
	if len(rows) == 0 {
		return nil
	}
	base, err := reverseTo(k, rows[0], f.data)
	if err == nil {
		w.base[path] = base
	}
	return err
}

func reverseTo(k patchset.Set, r patchset.Row, data []byte) ([]byte, error) {
	v, _ := k.Variant(r.Variant)
	d, _ := fileOf(v.Files, r.Path)
	base, err := d.Reverse().Apply(data)
	if err == nil && patchset.DigestOf(base) != r.Pristine {
		err = errors.New("reversing the hunks does not give the listed original")
	}
	return base, err
}

// proved makes sure that a listed content gets the listed result; its digest
// says more than a look at the scopes could.
func (w *planner) proved(k patchset.Set, v patchset.Variant, rows []patchset.Row) error {
	for _, r := range rows {
		d, _ := fileOf(v.Files, r.Path)
		if k.Tried {
			d = d.Sure()
		}
		got, err := compose(w.base[r.Path], []placed{{k.ID, d}})
		if err == nil && patchset.DigestOf(got) != r.Patched {
			err = errors.New("the result is not the one in the release table")
		}
		if err != nil {
			return &RefusedError{Code: "table", Path: w.s.abs(r.Path), Message: fmt.Sprintf("%s: %s %s: %v", w.s.abs(r.Path), k.ID, v.Name, err)}
		}
	}
	if w.g.Check && k.Check != nil {
		return w.prove(k, v)
	}
	return nil
}

// unlisted judges contents that no table knows.
func (w *planner) unlisted(k patchset.Set) (patchset.Variant, error) {
	none := patchset.Variant{}
	for _, p := range k.Paths() {
		if line := lineNaming(w.base[p], k); line > 0 {
			return none, &RefusedError{Code: "foreign", Path: w.s.abs(p), Line: line, Message: fmt.Sprintf("%s:%d: somebody opened this gate by hand; it is neither patched over nor restored from anywhere", w.s.abs(p), line), Hint: "put the published file back (pip install --force-reinstall --no-deps sglang==" + orVersion(w.s.In.Release) + "), then apply"}
		}
		if marked(w.base[p], k, p) {
			return none, &RefusedError{Code: "foreign", Path: w.s.abs(p), Message: w.s.abs(p) + " has lines of " + k.ID + ", but it is not a published text with them; it is neither patched over nor restored from anywhere", Hint: "put the published file back (pip install --force-reinstall --no-deps sglang==" + orVersion(w.s.In.Release) + "), then apply"}
		}
	}
	if reason, bad := k.UnsupportedReason(w.s.In.Release); bad {
		return none, &RefusedError{Code: "unsupported", Path: w.s.firstFile(k), Message: fmt.Sprintf("SGLang %s in %s is not supported: %s", w.s.In.Release, w.s.In.Root, reason), Hint: "sgpatch list" + w.s.Flags()}
	}
	fit, err := w.fitting(k)
	if err != nil {
		return none, err
	}
	if w.g.ListedOnly {
		return none, &RefusedError{Code: "unlisted", Path: w.s.unlistedFile(k), Message: fmt.Sprintf("%s is not a published content of any supported release (--listed-only)", w.s.unlistedFile(k)), Hint: "without --listed-only it is patched if every hunk fits exactly and the behaviour check passes"}
	}
	var good []patchset.Variant
	var last error
	for _, v := range fit {
		if err := w.prove(k, v); err != nil {
			last = err
		} else {
			good = append(good, v)
		}
	}
	switch len(good) {
	case 0:
		return none, last
	case 1:
		return good[0], nil
	}
	return none, &RefusedError{Code: "ambiguous", Path: w.s.firstFile(k), Message: fmt.Sprintf("%s: the variants %s and %s both fit; which one is right cannot be told", w.s.firstFile(k), good[0].Name, good[1].Name)}
}

func orVersion(release string) string {
	if release == "" {
		return "VERSION"
	}
	return release
}

func (s *Site) firstFile(k patchset.Set) string { return s.abs(k.Paths()[0]) }

// unlistedFile is the first file of the set whose content no table knows.
func (s *Site) unlistedFile(k patchset.Set) string {
	for _, p := range k.Paths() {
		if f := s.file(p); f.have != "" && len(k.Listed(p, f.have)) == 0 {
			return s.abs(p)
		}
	}
	return s.firstFile(k)
}

func lineNaming(text []byte, k patchset.Set) int {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if names(line, k) {
			return n
		}
	}
	return 0
}

// fitting lists the variants that fit the bases, or says what does not.
func (w *planner) fitting(k patchset.Set) ([]patchset.Variant, error) {
	var fit []patchset.Variant
	var why []string
	bad := ""
	fewest := -1
	for _, v := range k.Variants {
		misses, path := w.misses(v)
		if len(misses) == 0 {
			fit = append(fit, v)
			continue
		}
		n := len(misses)
		if k.VariantOf(w.s.In.Release) == v.Name {
			n = 0 // the one for the release that it says it is
		}
		if fewest < 0 || n < fewest {
			fewest, why, bad = n, misses, path
		}
	}
	if len(fit) > 0 {
		return fit, nil
	}
	return nil, &RefusedError{Code: "no-fit", Path: bad, Message: fmt.Sprintf("%s does not fit this SGLang (release %s): %s", k.ID, orUnknown(w.s.In.Release), strings.Join(why, "; ")), Hint: "sgpatch list" + w.s.Flags()}
}

func orUnknown(release string) string {
	if release == "" {
		return "unknown"
	}
	return release
}

// misses lists the hunks of a variant that do not fit, and the first bad file.
func (w *planner) misses(v patchset.Variant) (why []string, path string) {
	for _, f := range v.Files {
		if w.s.file(f.Path).have == "" {
			why = append(why, w.s.abs(f.Path)+": no such file")
		} else {
			_, err := f.Place(w.base[f.Path])
			var pe *patchset.PlaceError
			if errors.As(err, &pe) {
				for _, h := range pe.Hunks {
					why = append(why, fmt.Sprintf("%s (variant %s)", strings.Replace(h.Error(), f.Path, w.s.abs(f.Path), 1), v.Name))
				}
			}
		}
		if len(why) > 0 && path == "" {
			path = w.s.abs(f.Path)
		}
	}
	return why, path
}

// prove runs the behaviour check on a variant's result.
func (w *planner) prove(k patchset.Set, v patchset.Variant) error {
	proof := Proof{Set: k, Root: w.s.In.Root, Pristine: map[string][]byte{}, Staged: map[string][]byte{}}
	for _, f := range v.Files {
		got, err := f.Apply(w.base[f.Path])
		if err != nil {
			return err
		}
		proof.Pristine[f.Path], proof.Staged[f.Path] = w.base[f.Path], got
	}
	if w.g.Prove == nil {
		return &RefusedError{Code: "unproved", Path: w.s.unlistedFile(k), Message: fmt.Sprintf("%s is not in the release table, and there is no Python here to check what the patch would do to it", w.s.unlistedFile(k)), Hint: "name an interpreter with --python"}
	}
	if err := w.g.Prove(proof); err != nil {
		var re *RefusedError
		if errors.As(err, &re) {
			re.Path = w.s.unlistedFile(k)
			re.Message = re.Path + ": " + re.Message
			return re
		}
		return &RefusedError{Code: "check", Path: w.s.unlistedFile(k), Message: fmt.Sprintf("%s: %s (%s) fits, but does not do what it should: %v", w.s.unlistedFile(k), k.ID, v.Name, err), Hint: "sgpatch list" + w.s.Flags()}
	}
	return nil
}

// compose plans every file: its base with the hunks of all sets to be.
func (w *planner) compose() error {
	for path, sets := range w.take {
		base := w.base[path]
		want, err := compose(base, sets)
		if err != nil {
			return w.clash(path, sets, err)
		}
		t := Tracked{Path: path, Pristine: patchset.DigestOf(base), Want: patchset.DigestOf(want), Sets: setsOf(sets)}
		t.Mtime = w.s.pristineTime(t)
		w.next.Files = append(w.next.Files, t)
		if err := w.put(path, want, time.Time{}); err != nil {
			return err
		}
		if w.s.file(path).have != t.Pristine {
			w.p.Keep = append(w.p.Keep, base) // the commit saves only what it replaces
		}
	}
	slices.SortFunc(w.p.Writes, func(a, b txn.Write) int { return strings.Compare(a.Rel, b.Rel) })
	return nil
}

// clash says that the hunks of several sets do not go together.
func (w *planner) clash(path string, sets []placed, err error) error {
	ids := strings.Join(setsOf(sets), " and ")
	return &RefusedError{Code: "clash", Path: w.s.abs(path), Message: fmt.Sprintf("%s: %s cannot both be in place: %v", w.s.abs(path), ids, err), Hint: "take one out first: sgpatch revert " + sets[0].set + w.s.Flags()}
}

func setsOf(sets []placed) []string {
	var all []string
	for _, p := range sets {
		all = append(all, p.set)
	}
	return all
}

func compose(base []byte, sets []placed) ([]byte, error) {
	var edits []patchset.Edit
	for _, p := range sets {
		e, err := p.file.Place(base)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.set, err)
		}
		edits = append(edits, e...)
	}
	return patchset.Splice(base, edits)
}
