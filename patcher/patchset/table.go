package patchset

import (
	"fmt"
	"slices"
	"strings"
)

const tableHeader = "release\tpath\tpristine_sha256\tpatched_sha256\tvariant\n"

// parseTable reads the release table of a set whose variants are known, and
// checks it unless it is sound.
func parseTable(text []byte, s Set, sound bool) ([]Row, error) {
	if sound {
		return rowsOf(string(text)), nil
	}
	t := newTable(s)
	for line := range strings.Lines(string(text)) { // rows share its memory
		t.line++
		if t.line == 1 {
			if line != tableHeader {
				return nil, t.fail("the first line is not %q", tableHeader)
			}
			continue
		}
		if err := t.add(line); err != nil {
			return nil, err
		}
	}
	if t.line == 0 {
		return nil, t.fail("the file is empty")
	}
	return t.rows, t.complete()
}

func rowsOf(text string) []Row {
	rows := make([]Row, 0, strings.Count(text, "\n"))
	for line := range strings.Lines(strings.TrimPrefix(text, tableHeader)) {
		rows = append(rows, newRow(strings.Split(strings.TrimSuffix(line, "\n"), "\t")))
	}
	return rows
}

func newRow(f []string) Row {
	return Row{Release: f[0], Path: f[1], Pristine: Digest(f[2]), Patched: Digest(f[3]), Variant: f[4]}
}

// table checks rows against each other as they come. What is slow to find in a
// set is a map here, so a table of any size takes linear time.
type table struct {
	line     int
	rows     []Row
	variants map[string][]string // name: the paths it changes, sorted
	releases map[string]*releaseRows
	patched  map[Row]Digest // by variant, path and pristine digest
}

// releaseRows is what the table says about one release.
type releaseRows struct {
	line    int // of its first row
	variant string
	paths   map[string]bool
}

func newTable(s Set) *table {
	t := &table{
		variants: map[string][]string{},
		releases: map[string]*releaseRows{},
		patched:  map[Row]Digest{},
	}
	for _, v := range s.Variants {
		for _, f := range v.Files {
			t.variants[v.Name] = append(t.variants[v.Name], f.Path)
		}
	}
	return t
}

func (t *table) fail(reason string, args ...any) error {
	return &DataError{Line: t.line, Reason: fmt.Sprintf(reason, args...)}
}

func (t *table) add(line string) error {
	fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 6)
	if len(fields) != 5 || !strings.HasSuffix(line, "\n") {
		return t.fail("not five fields with tabs between them and a newline behind them")
	}
	r := newRow(fields)
	paths, known := t.variants[r.Variant]
	switch {
	case !isVersion(r.Release) || !isRelease(r.Release):
		return t.fail("%s is not a release", clip([]byte(r.Release)))
	case !isDigest(r.Pristine) || !isDigest(r.Patched):
		return t.fail("a digest is not 64 lower-case hex digits")
	case r.Pristine == r.Patched:
		return t.fail("the two digests are the same")
	case !known:
		return t.fail("there is no variant %s", clip([]byte(r.Variant)))
	case !contains(paths, r.Path):
		return t.fail("the variant %s does not change %s", r.Variant, clip([]byte(r.Path)))
	}
	return t.relate(r)
}

// relate checks the row against those before it.
func (t *table) relate(r Row) error {
	rel := t.releases[r.Release]
	if rel == nil {
		rel = &releaseRows{line: t.line, variant: r.Variant, paths: map[string]bool{}}
		t.releases[r.Release] = rel
	}
	key := Row{Variant: r.Variant, Path: r.Path, Pristine: r.Pristine}
	other, known := t.patched[key]
	switch {
	case rel.variant != r.Variant:
		return t.fail("release %s has variant %s in line %d", r.Release, rel.variant, rel.line)
	case rel.paths[r.Path]:
		return t.fail("release %s has a row for %s already", r.Release, r.Path)
	case known && other != r.Patched:
		return t.fail("the same pristine content of %s becomes something else in an earlier row", r.Path)
	}
	rel.paths[r.Path] = true
	t.patched[key] = r.Patched
	t.rows = append(t.rows, r)
	return nil
}

// complete demands a row for every path that a listed release's variant changes.
func (t *table) complete() error {
	for _, r := range t.rows {
		rel := t.releases[r.Release]
		if len(rel.paths) == len(t.variants[rel.variant]) {
			continue
		}
		t.line = rel.line
		for _, path := range t.variants[rel.variant] {
			if !rel.paths[path] {
				return t.fail("release %s has no row for %s", r.Release, path)
			}
		}
	}
	return nil
}

func contains(sorted []string, s string) bool {
	_, ok := slices.BinarySearch(sorted, s)
	return ok
}

func isDigest(d Digest) bool {
	return len(d) == 64 && strings.Trim(string(d), "0123456789abcdef") == ""
}
