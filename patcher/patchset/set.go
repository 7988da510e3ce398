package patchset

import (
	"slices"
	"sort"
)

// Listed returns the rows of the release table that know this content of path
// as pristine.
func (s Set) Listed(path string, d Digest) []Row {
	return s.rows(func(r Row) bool { return r.Path == path && r.Pristine == d })
}

// PatchedRows returns the rows of the release table that know this content of
// path as patched.
func (s Set) PatchedRows(path string, d Digest) []Row {
	return s.rows(func(r Row) bool { return r.Path == path && r.Patched == d })
}

func (s Set) rows(want func(Row) bool) []Row {
	var out []Row
	for _, r := range s.Rows {
		if want(r) {
			out = append(out, r)
		}
	}
	return out
}

// Paths returns the paths that any variant of the set changes, sorted.
func (s Set) Paths() []string {
	var out []string
	for _, v := range s.Variants {
		for _, f := range v.Files {
			out = append(out, f.Path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Variant returns the variant of that name, and whether there is one.
func (s Set) Variant(name string) (Variant, bool) {
	i := sort.Search(len(s.Variants), func(i int) bool { return s.Variants[i].Name >= name })
	if i == len(s.Variants) || s.Variants[i].Name != name {
		return Variant{}, false
	}
	return s.Variants[i], true
}

// File returns the change of that path, and whether the variant has one.
func (v Variant) File(path string) (File, bool) {
	i := sort.Search(len(v.Files), func(i int) bool { return v.Files[i].Path >= path })
	if i == len(v.Files) || v.Files[i].Path != path {
		return File{}, false
	}
	return v.Files[i], true
}

// VariantOf names the variant for a release of the table, "" for any other.
func (s Set) VariantOf(release string) string {
	for _, r := range s.Rows {
		if r.Release == release {
			return r.Variant
		}
	}
	return ""
}

// UnsupportedReason returns why the set refuses a release, and whether it does.
func (s Set) UnsupportedReason(release string) (string, bool) {
	for _, span := range s.Unsupported {
		if span.Contains(release) {
			return span.Text, true
		}
	}
	return "", false
}

// Contains reports whether a release is in the span.
func (s Span) Contains(release string) bool {
	return (s.From == "" || CompareReleases(s.From, release) <= 0) &&
		(s.To == "" || CompareReleases(release, s.To) <= 0)
}
