package patchset

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sourcegraph/go-diff/diff"
)

// Limits of one diff; a larger one is refused before it is parsed.
const (
	maxDiff  = 8 << 20 // bytes
	maxLine  = 1 << 20 // bytes, terminator included
	maxHunks = maxSetHunks
)

// Parse reads a unified diff that changes existing regular files and does
// nothing else. Whatever it does not understand to the last byte it refuses
// with a *DataError that carries name and the line; so Print gives back text.
//
// go-diff does the reading, but it takes counts that contradict the body and
// drops what it cannot place. Therefore vet looks at every line before it, and
// each file it returns is printed again and compared with the text after it.
// A right diff that it misreads is refused as well: one where a removed "-- "
// line, an added "++ " line and a hunk header follow each other.
func Parse(name string, text []byte) ([]File, error) {
	if err := vet(name, text); err != nil {
		return nil, err
	}
	p := parser{name: name, rest: text, line: 1, seen: map[string]bool{}}
	r := diff.NewMultiFileDiffReaderOptions(bytes.NewReader(text), diff.ParseOptions{KeepCR: true})
	for {
		fd, err := r.ReadFile()
		if errors.Is(err, io.EOF) {
			return p.finish()
		}
		if err != nil {
			return nil, p.broken(err)
		}
		if err := p.add(fd); err != nil {
			return nil, err
		}
	}
}

// parser accounts for the text, file by file.
type parser struct {
	name  string
	rest  []byte // not yet accounted for
	line  int    // the line where rest starts
	files []File
	seen  map[string]bool
}

func (p *parser) fail(line int, hint, reason string, args ...any) error {
	return &DataError{File: p.name, Line: line, Reason: fmt.Sprintf(reason, args...), Hint: hint}
}

func (p *parser) finish() ([]File, error) {
	if len(p.rest) > 0 {
		return nil, p.fail(p.line, "", "a file header without hunks, or text that belongs to no hunk")
	}
	return p.files, nil
}

// broken turns an error of go-diff, whose line numbers are wrong behind the
// first file, into one with the line of the file header it stumbled over.
func (p *parser) broken(err error) error {
	line := p.line
	for l := range bytes.Lines(p.rest) {
		if bytes.HasPrefix(l, []byte("--- ")) {
			break
		}
		line++
	}
	var pe *diff.ParseError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return p.fail(line, headerHint, "the file header cannot be read: %v", err)
}

const headerHint = "two lines, --- a/PATH and +++ b/PATH, nothing behind the names"

// add converts one file, demands that it prints as the text it came from, and
// checks what the text says.
func (p *parser) add(fd *diff.FileDiff) error {
	f := File{Path: strings.TrimPrefix(fd.OrigName, "a/")}
	if err := p.checkHeader(f, fd); err != nil {
		return err
	}
	for _, l := range fd.Extended {
		f.header += l + "\n"
	}
	f.Hunks = make([]Hunk, len(fd.Hunks))
	for i, h := range fd.Hunks {
		f.Hunks[i] = convert(h)
	}
	printed := f.appendTo(nil)
	if !bytes.HasPrefix(p.rest, printed) {
		return p.mismatch(printed)
	}
	if err := p.checkHunks(f, p.line+len(fd.Extended)+2); err != nil {
		return err
	}
	p.rest = p.rest[len(printed):]
	p.line += bytes.Count(printed, []byte{'\n'})
	p.files = append(p.files, f)
	return nil
}

// mismatch names the first line of the text that does not print as itself.
func (p *parser) mismatch(printed []byte) error {
	line, rest := p.line, p.rest
	for want := range bytes.Lines(printed) {
		have := rest[:bytes.IndexByte(rest, '\n')+1]
		if !bytes.Equal(have, want) {
			hint := "the form is: " + clip(bytes.TrimSuffix(want, []byte{'\n'}))
			return p.fail(line, hint, "not in the form that git writes: %s", clip(bytes.TrimSuffix(have, []byte{'\n'})))
		}
		rest = rest[len(have):]
		line++
	}
	return p.fail(line, "", "not in the form that git writes")
}

// clip quotes the beginning of a line for a message.
func clip(line []byte) string {
	if len(line) > 80 {
		return fmt.Sprintf("%q...", line[:80])
	}
	return fmt.Sprintf("%q", line)
}

// convert takes a hunk over from go-diff, which marks the unterminated old
// line by an offset and the unterminated new one by a body without newline.
func convert(d *diff.Hunk) Hunk {
	h := Hunk{
		OldLine: int(d.OrigStartLine), OldCount: int(d.OrigLines),
		NewLine: int(d.NewStartLine), NewCount: int(d.NewLines),
		Scope: d.Section,
		Lines: make([]Line, 0, bytes.Count(d.Body, []byte{'\n'})+1),
	}
	end := 0
	for l := range bytes.Lines(d.Body) {
		end += len(l)
		text := l[1:]
		if end == int(d.OrigNoNewlineAt) {
			text = bytes.TrimSuffix(text, []byte{'\n'})
		}
		h.Lines = append(h.Lines, Line{Op: l[0], Text: text})
	}
	return h
}
