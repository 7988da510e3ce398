package patchset

import (
	"bytes"
	"strconv"
	"strings"
)

// File is the change of one regular file: at least one hunk, in order, none
// overlapping another. Parse makes it and has checked it.
type File struct {
	Path  string // slash-separated, from the root, without a/ or b/
	Hunks []Hunk

	header string // "diff --git" and "index" lines as they were, or ""
	sure   bool   // its hunks are known to fit where it is used
}

// Hunk is one change with its context. It has at least one old line and one
// new line, and at least one of them differs.
type Hunk struct {
	OldLine, OldCount int    // 1-based first line and number of lines before
	NewLine, NewCount int    // the same after
	Scope             string // the text behind the second @@; "" is module level
	Lines             []Line
}

// Line is one line of a hunk.
type Line struct {
	Op   byte   // ' ', '-' or '+'
	Text []byte // with its "\n" or "\r\n"; without one if the file ends here
}

const (
	hunkMark  = "@@ -"
	noNewline = `\ No newline at end of file`
)

// Old returns the lines that the hunk demands: context and removed ones.
func (h Hunk) Old() [][]byte { return h.without('+') }

// New returns the lines that the hunk leaves: context and added ones.
func (h Hunk) New() [][]byte { return h.without('-') }

func (h Hunk) without(op byte) [][]byte {
	out := make([][]byte, 0, len(h.Lines))
	for _, l := range h.Lines {
		if l.Op != op {
			out = append(out, l.Text)
		}
	}
	return out
}

// Print returns the unified diff of the files. For what Parse accepted it is
// the parsed text, byte for byte.
func Print(files []File) []byte {
	var out []byte
	for _, f := range files {
		out = f.appendTo(out)
	}
	return out
}

func (f File) appendTo(out []byte) []byte {
	out = append(out, f.header...)
	out = append(out, "--- a/"+f.Path+"\n+++ b/"+f.Path+"\n"...)
	for _, h := range f.Hunks {
		out = h.appendTo(out)
	}
	return out
}

func (h Hunk) appendTo(out []byte) []byte {
	out = append(out, hunkMark...)
	out = appendRange(out, h.OldLine, h.OldCount)
	out = append(out, " +"...)
	out = appendRange(out, h.NewLine, h.NewCount)
	out = append(out, " @@"...)
	if h.Scope != "" {
		out = append(out, " "+h.Scope...)
	}
	out = append(out, '\n')
	for _, l := range h.Lines {
		out = append(append(out, l.Op), l.Text...)
		if !terminated(l.Text) {
			out = append(out, "\n"+noNewline+"\n"...)
		}
	}
	return out
}

// appendRange leaves out a count of 1, as git does.
func appendRange(out []byte, line, count int) []byte {
	out = strconv.AppendInt(out, int64(line), 10)
	if count != 1 {
		out = strconv.AppendInt(append(out, ','), int64(count), 10)
	}
	return out
}

func terminated(line []byte) bool { return bytes.HasSuffix(line, []byte("\n")) }

// Reverse returns the change that undoes f: what f removes it adds, and the
// line numbers of its hunks are those of the patched file.
func (f File) Reverse() File {
	r := File{Path: f.Path, header: reverseHeader(f.header), Hunks: make([]Hunk, len(f.Hunks)), sure: f.sure}
	for i, h := range f.Hunks {
		r.Hunks[i] = Hunk{
			OldLine: h.NewLine, OldCount: h.NewCount,
			NewLine: h.OldLine, NewCount: h.OldCount,
			Scope: h.Scope, Lines: reverseLines(h.Lines),
		}
	}
	return r
}

// reverseLines swaps - and + and keeps git's order, removed lines first, in
// every run of changes.
func reverseLines(lines []Line) []Line {
	out := make([]Line, 0, len(lines))
	var added []Line
	for _, l := range lines {
		switch l.Op {
		case '+':
			out = append(out, Line{'-', l.Text})
		case '-':
			added = append(added, Line{'+', l.Text})
		default:
			out = append(append(out, added...), l)
			added = added[:0]
		}
	}
	return append(out, added...)
}

// reverseHeader swaps the two blob names of the index line.
func reverseHeader(header string) string {
	git, index, ok := strings.Cut(header, "\nindex ")
	if !ok {
		return header
	}
	blobs, mode, _ := strings.Cut(strings.TrimSuffix(index, "\n"), " ")
	from, to, _ := strings.Cut(blobs, "..")
	if mode != "" {
		mode = " " + mode
	}
	return git + "\nindex " + to + ".." + from + mode + "\n"
}
