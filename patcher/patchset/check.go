package patchset

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sourcegraph/go-diff/diff"
)

const bom = "\xef\xbb\xbf"

// checkHeader checks what stands before the hunks of a file, line by line.
func (p *parser) checkHeader(f File, fd *diff.FileDiff) error {
	names := p.line + len(fd.Extended)
	if err := p.checkGit(f, fd.Extended); err != nil {
		return err
	}
	for i, name := range []string{fd.OrigName, fd.NewName} {
		if name == "/dev/null" {
			return p.fail(names+i, onlyChange, "%s a file", [2]string{"creates", "deletes"}[i])
		}
	}
	if fd.OrigTime != nil || fd.NewTime != nil {
		return p.fail(names, headerHint, "a time behind the name")
	}
	if !strings.HasPrefix(fd.OrigName, "a/") {
		return p.fail(names, headerHint, "the old name %q does not start with a/", fd.OrigName)
	}
	if reason := badPath(f.Path); reason != "" {
		return p.fail(names, "", "the path %q %s", f.Path, reason)
	}
	if fd.NewName != "b/"+f.Path {
		return p.fail(names+1, "a set renames nothing", "the new name %q is not %q", fd.NewName, "b/"+f.Path)
	}
	if p.seen[f.Path] {
		return p.fail(names, "put its hunks together", "%s is in this diff already", f.Path)
	}
	p.seen[f.Path] = true
	if len(fd.Hunks) == 0 {
		return p.fail(names, "", "%s has no hunk", f.Path)
	}
	return nil
}

// checkGit allows nothing, a "diff --git" line, or that and an "index" line.
func (p *parser) checkGit(f File, lines []string) error {
	for i, l := range lines {
		switch {
		case i == 0 && strings.HasPrefix(l, "diff --git "):
			if f.Path != "" && l != "diff --git a/"+f.Path+" b/"+f.Path {
				return p.fail(p.line, "", "names other files than the --- and +++ lines: %s", clip([]byte(l)))
			}
		case i == 1 && strings.HasPrefix(l, "index "):
			if reason := badIndex(strings.TrimPrefix(l, "index ")); reason != "" {
				return p.fail(p.line+i, onlyChange, "%s: %s", reason, clip([]byte(l)))
			}
		default:
			return p.fail(p.line+i, "a diff holds file headers and hunks, nothing else", "text before the file header: %s", clip([]byte(l)))
		}
	}
	if f.Path == "" {
		return p.fail(p.line, headerHint, "no file header")
	}
	return nil
}

// badIndex checks "OLD..NEW" or "OLD..NEW MODE".
func badIndex(s string) string {
	blobs, mode, hasMode := strings.Cut(s, " ")
	old, now, ok := strings.Cut(blobs, "..")
	switch {
	case !ok || !isBlob(old) || !isBlob(now):
		return "not an index line"
	case strings.Trim(old, "0") == "":
		return "creates a file"
	case strings.Trim(now, "0") == "":
		return "deletes a file"
	case hasMode && mode != "100644" && mode != "100755":
		return "not a regular file"
	}
	return ""
}

func isBlob(s string) bool {
	return 4 <= len(s) && len(s) <= 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// badPath says why a path may not stand in a set, "" if it may. What lies
// behind it on a host is checked there; this is the lexical half.
func badPath(path string) string {
	switch {
	case path == "":
		return "is empty"
	case len(path) > 1024:
		return "is longer than 1024 bytes"
	case !utf8.ValidString(path):
		return "is not UTF-8"
	case path[0] == '"':
		return "is quoted; such names are not supported"
	case path[0] == '/':
		return "is absolute"
	case strings.IndexFunc(path, unicode.IsControl) >= 0:
		return "has a control character; is there a time behind the name?"
	case strings.IndexFunc(path, unicode.IsSpace) >= 0:
		return "has a blank, where GNU patch would cut it"
	case strings.Contains(path, `\`):
		return "has a backslash"
	case strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "has a character that cannot be seen"
	}
	for elem := range strings.SplitSeq(path, "/") {
		switch {
		case elem == "" || elem == "." || elem == "..":
			return "has an empty, . or .. element"
		case strings.EqualFold(elem, ".sgpatch"):
			return "leads into .sgpatch"
		}
	}
	return ""
}

// checkHunks checks the hunks of a file; line is where the first one starts.
func (p *parser) checkHunks(f File, line int) error {
	nextOld, delta := 1, 0
	for i, h := range f.Hunks {
		if err := p.checkCounts(h, line); err != nil {
			return err
		}
		if h.OldLine < nextOld {
			return p.fail(line, "", "the hunk starts at line %d, before line %d where the one before it ends", h.OldLine, nextOld)
		}
		if want := h.OldLine + delta; h.NewLine != want {
			return p.fail(line, "", "the hunk's new lines start at %d; after the hunks before it they start at %d", h.NewLine, want)
		}
		if err := p.checkScope(f.Path, h, line); err != nil {
			return err
		}
		if err := p.checkLines(h, line, i == len(f.Hunks)-1); err != nil {
			return err
		}
		nextOld, delta = h.OldLine+h.OldCount, delta+h.NewCount-h.OldCount
		line += h.height()
	}
	return nil
}

// height is the number of lines that the hunk has in a diff.
func (h Hunk) height() int {
	n := 1 + len(h.Lines)
	for _, l := range h.Lines {
		if !terminated(l.Text) {
			n++
		}
	}
	return n
}

func (p *parser) checkCounts(h Hunk, line int) error {
	var old, now, changed int
	for _, l := range h.Lines {
		switch l.Op {
		case '-':
			old++
			changed++
		case '+':
			now++
			changed++
		default:
			old++
			now++
		}
	}
	const hint = "line of context keeps the hunk's place findable, and the change revertible"
	switch {
	case old != h.OldCount || now != h.NewCount:
		return p.fail(line, "", "the header says -%d +%d lines, the body has -%d +%d", h.OldCount, h.NewCount, old, now)
	case old == 0:
		return p.fail(line, "a "+hint, "the hunk has no old line")
	case now == 0:
		return p.fail(line, "a "+hint, "the hunk leaves no line")
	case changed == 0:
		return p.fail(line, "", "the hunk changes nothing")
	}
	return nil
}

func (p *parser) checkScope(path string, h Hunk, line int) error {
	switch {
	case h.Scope == "":
		return nil
	case !isPython(path):
		return p.fail(line, "leave out the text behind the second @@", "a scope %q in a file that is not Python", h.Scope)
	case len(h.Scope) > maxText || !isQualified(h.Scope):
		return p.fail(line, "write the qualified name, as Class.method, or nothing for module level", "%s is not the name of a scope", clip([]byte(h.Scope)))
	}
	return nil
}

func isPython(path string) bool { return strings.HasSuffix(path, ".py") }

// isQualified reports whether s is identifiers joined by dots.
func isQualified(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for elem := range strings.SplitSeq(s, ".") {
		for i, r := range elem {
			if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.In(r, unicode.Nd, unicode.Mn, unicode.Mc)) {
				return false
			}
		}
		if elem == "" {
			return false
		}
	}
	return true
}

// checkLines checks that only the last line of a side lacks its newline, and
// only in the last hunk. Line by line it counts on to name the right one.
func (p *parser) checkLines(h Hunk, line int, last bool) error {
	var oldEnd, newEnd bool
	for _, l := range h.Lines {
		line++
		inOld, inNew := l.Op != '+', l.Op != '-'
		switch {
		case oldEnd && inOld || newEnd && inNew:
			return p.fail(line, "", "a line behind the end of the file")
		case bytes.HasPrefix(l.Text, []byte(bom)):
			return p.fail(line, "leave it out; the file keeps its own", "a byte order mark at the start of a line")
		case terminated(l.Text):
			continue
		case !last:
			return p.fail(line, "", "the file ends here, but another hunk follows")
		case len(l.Text) == 0:
			return p.fail(line, "", "a last line without text or newline, which no file has")
		case bytes.HasSuffix(l.Text, []byte{'\r'}):
			return p.fail(line, "", "the file would end in a lone carriage return")
		}
		line++
		oldEnd, newEnd = oldEnd || inOld, newEnd || inNew
	}
	return nil
}
