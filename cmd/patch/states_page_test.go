package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	pageStart = "<!-- tables: go test ./cmd/patch -run States -update -->\n"
	pageEnd   = "<!-- end of the tables -->\n"
)

// page collects the tables of docs/states.md.
type page struct{ strings.Builder }

func newPage() *page { return &page{} }

func (p *page) table(title, text string, columns ...string) {
	fmt.Fprintf(p, "\n## %s\n\n", title)
	if text != "" {
		fmt.Fprintf(p, "%s\n\n", text)
	}
	p.row(columns...)
	fmt.Fprintf(p, "|%s\n", strings.Repeat("---|", len(columns)))
}

func (p *page) row(cells ...string) {
	fmt.Fprintf(p, "| %s |\n", strings.Join(cells, " | "))
}

func (p *page) single(names []named, all []outcome) {
	p.table("One state", "The set is in place in both files, and one thing is other than that.", "state", "`status`", "`verify`", "`verify --fast`", "`apply`", "`revert`")
	for i, o := range all {
		p.row(names[i].name, stood(o.status), verdict(o.verify), verdict(o.fast), did(o.apply.plain), did(o.revert.plain))
	}
}

func (p *page) unlisted(names []named, all []outcome) {
	p.table("One state, contents that no release table knows", "A fork, or a release that is newer than this program. With a receipt nothing is different; without one nobody can tell our lines from those of somebody who wrote the same.", "state", "`status`", "`verify`", "`apply`", "`revert`", "`revert SET`")
	for i, o := range all {
		p.row(names[i].name, stood(o.status), verdict(o.verify), did(o.apply.plain), did(o.revert.plain), did(o.named.plain))
	}
}

func (p *page) entries(all []outcome) {
	p.table("The entry alone", "Somebody edits `sitecustomize.py`.", "entry", "code", "records", "`status`", "`verify`", "`apply`", "`revert`")
	for _, o := range all {
		p.row(o.entry, string(o.files[0]), string(o.records), stood(o.status), verdict(o.verify), did(o.apply.plain), did(o.revert.plain))
	}
}

// beside says how records and entry stand in a table of pairs.
var beside = map[recordState]struct{ title, text string }{
	kept:      {"records and entry as apply left them", "Every pair, in both orders."},
	noReceipt: {"the receipt is missing", "The entry is in place and names this install. Here and below each pair stands in one order."},
	strange:   {"the receipt is of another machine", "Code, records and entry came from another path."},
	layer:     {"an image layer without `.sgpatch`", "Code and entry came from another path, the records did not."},
	alone:     {"`.sgpatch` came without the entry", "The records are of another path, and there is no entry."},
	never:     {"no records and no entry", "Nothing was applied here, or the code alone was copied."},
}

// pairs is one table for a state of the records. revert with a name stands
// beside the other where it can be another one.
func (p *page) pairs(r recordState, all []outcome) {
	head := []string{"`a.py`", "`b.py`", "`status`", "`verify`", "`apply`", "`revert`"}
	if !r.receipt() {
		head = append(head, "`revert SET`")
	}
	p.table("Two files, "+beside[r].title, beside[r].text, head...)
	for _, o := range all {
		row := []string{string(o.files[0]), string(o.files[1])}
		if o.noDir {
			row = []string{"no directory", ""}
		}
		row = append(row, stood(o.status), verdict(o.verify), did(o.apply.plain), did(o.revert.plain))
		if !r.receipt() {
			row = append(row, did(o.named.plain))
		}
		p.row(row...)
	}
}

// stood is what status says of the set.
func stood(r *Report) string {
	if r.Exit != exitOK {
		return fmt.Sprintf("%d: %s", r.Exit, codes(r, "error"))
	}
	return stateIn(r)
}

func verdict(r *Report) string {
	if r.Exit == exitOK {
		return "0"
	}
	return fmt.Sprintf("%d: %s", r.Exit, codes(r, "error"))
}

// did is what a command changed, or why not.
func did(r *Report) string {
	if r.Exit != exitOK {
		return fmt.Sprintf("%d: %s", r.Exit, codes(r, "error"))
	}
	var what []string
	for _, path := range r.Changed {
		name := strings.TrimSuffix(filepath.Base(path), ".py")
		if name == "sitecustomize" {
			name = "entry"
		}
		what = append(what, name)
	}
	if what == nil {
		what = []string{"–"}
	}
	text := "0: " + strings.Join(what, ", ")
	said := strings.ReplaceAll(codes(r, "note")+", "+codes(r, "warning"), "unproved-entry", "")
	if said = strings.Trim(said, ", "); said != "" {
		text += " (" + said + ")"
	}
	return text
}

// compare holds the tables against the page, or writes them into it.
func (p *page) compare(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	start, end := strings.Index(text, pageStart), strings.Index(text, pageEnd)
	if start < 0 || end < start {
		t.Fatalf("%s: the markers of the tables are not there", path)
	}
	start += len(pageStart)
	if got := p.String() + "\n"; *update {
		if err := os.WriteFile(path, []byte(text[:start]+got+text[end:]), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text[start:end] != got {
		t.Errorf("%s does not have what was seen; if that is right: go test ./cmd/patch -run States -update\n%s", path, cmp.Diff(text[start:end], got))
	}
}
