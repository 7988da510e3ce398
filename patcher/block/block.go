// Package block keeps the managed block of a sitecustomize.py: text in, text
// out, nothing read and nothing written.
//
// The block is valid Python in ASCII between two marker lines. It sets each
// variable only if it is absent, leaves no names in the module, and cannot stop
// the interpreter. Several installs may share one sitecustomize.py, so each
// entry records which install roots want it.
//
// Get never guesses: a marker that is doubled, truncated, edited or standing in
// a string is a *DamagedError. Set changes no byte outside the block, and
// taking the block out again gives back the text from before, byte for byte.
// Whether the text compiles is for the caller to ask the interpreter: a file
// that cannot run before cannot run after, and this package does not notice.
package block

import (
	"bytes"
	"fmt"
	"regexp"
	"sync"
)

// Block is the parsed block. The zero value is: no block. Get and With give it
// in normal form: entries sorted by name, roots sorted, neither without the
// other; Without and Keep leave it so.
type Block struct {
	Entries []Entry
	Made    bool // sgpatch created this file
}

// Entry is one variable of the block and the roots that want it. A root is the
// absolute path of an install, in any bytes but NUL.
type Entry struct {
	Name, Value string
	Roots       []string
}

// DamagedError says that the text holds something of a block which Set would
// not have written. Nobody but a person may decide what it was meant to be.
type DamagedError struct {
	Line int // counted from 1
	What string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("line %d: the sgpatch block is damaged: %s", e.Line, e.What)
}

// Get returns the block of text, the zero Block if there is none. The error is
// a *DamagedError.
func Get(text []byte) (Block, error) {
	at, err := find(text)
	return at.block, err
}

// Set returns text with the block b: inserted at Position, replaced where it
// stands, or, if b has no entries, taken out. The errors are *EntryError (b
// cannot be written), *DamagedError (text) and *SourceError (no place in text).
func Set(text []byte, b Block) ([]byte, error) {
	b, err := b.normal()
	if err != nil {
		return nil, err
	}
	at, err := find(text)
	if err != nil {
		return nil, err
	}
	switch there := at.end > 0; {
	case !there && len(b.Entries) == 0:
		return bytes.Clone(text), nil
	case !there:
		return insert(text, b)
	case len(b.Entries) == 0:
		return at.without(text), nil
	case at.late(text):
		return insert(at.without(text), b)
	default:
		return splice(text, at.start, at.end, at.render(b)), nil
	}
}

// late says whether somebody has put code before the block, which could end, or
// set a variable otherwise, before the block is reached.
func (p place) late(text []byte) bool {
	first, err := Position(p.without(text))
	if err != nil || first >= p.start {
		return false // there is no better place for it
	}
	for l := range lines(text[first:p.start]) {
		if !emptyLine().Match(l.body) {
			return true
		}
	}
	return false
}

// Empty reports that text holds nothing but a block, not even a space: a file
// that sgpatch made and nobody else touched. Damaged text is not empty.
func Empty(text []byte) bool {
	at, err := find(text)
	return err == nil && len(at.without(text)) == 0
}

func insert(text []byte, b Block) ([]byte, error) {
	pos, err := Position(text)
	if err != nil {
		return nil, err
	}
	head := bytes.TrimPrefix(text[:pos], bom)
	at := place{eol: eolOf(text)}
	at.ended = len(head) > 0 && !bytes.HasSuffix(head, []byte("\n")) && !bytes.HasSuffix(head, []byte("\r"))
	with := at.render(b)
	if at.ended {
		with = at.eol + with
	}
	return splice(text, pos, pos, with), nil
}

func splice(text []byte, start, end int, with string) []byte {
	out := make([]byte, 0, len(text)+len(with))
	out = append(out, text[:start]...)
	out = append(out, with...)
	return append(out, text[end:]...)
}

// place is where and how a block stands in a text. The zero value is: nowhere.
type place struct {
	start, end int    // with the markers and the last line end
	eol        string // "\n" or "\r\n", the same for all its lines
	ended      bool   // the line end before start was missing and is ours
	block      Block
}

// without takes the block out. Our line end before it goes too, unless somebody
// has since written something below that needs it.
func (p place) without(text []byte) []byte {
	start := p.start
	if p.ended && p.end == len(text) && bytes.HasSuffix(text[:start], []byte(p.eol)) {
		start -= len(p.eol)
	}
	return splice(text, start, p.end, "")
}

// marker matches what looks like one of our two marker lines, in whatever
// state. It is wider than what Set writes, so that a damaged one is noticed.
var marker = pattern(`(?i)>>>\s*sgpatch\s*>>>|<<<\s*sgpatch\s*<<<|^\s*#[#\s]*(>>>|<<<)\s*sgpatch\b`)

// pattern compiles an expression when it is first used: a program that does not
// look at a sitecustomize does not pay for it at its start.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// mentions tells most lines apart from markers without an expression, which
// takes longer to compile than everything else here together.
func mentions(body []byte) bool {
	return bytes.Contains(bytes.ToLower(body), []byte("sgpatch"))
}

// find looks for the one proper block.
func find(text []byte) (place, error) {
	var opening, closing line
	for l := range lines(text) {
		body := string(l.body)
		_, _, opens := opened(body)
		switch {
		case !opens && body != closingMarker:
			if !mentions(l.body) || !marker().Match(l.body) {
				continue
			}
			return place{}, damaged(l.number, "this looks like a marker line and is not one")
		case opens && opening.number > 0:
			return place{}, damaged(l.number, "a second opening marker (the first is in line %d)", opening.number)
		case opens:
			opening = l
		case opening.number == 0:
			return place{}, damaged(l.number, "a closing marker without an opening one")
		case closing.number > 0:
			return place{}, damaged(l.number, "a second closing marker (the first is in line %d)", closing.number)
		default:
			closing = l
		}
	}
	switch {
	case opening.number == 0:
		return place{}, nil
	case closing.number == 0:
		return place{}, damaged(opening.number, "an opening marker without a closing one")
	}
	return prove(text, opening, closing)
}

// prove reads the block between the markers and demands that Set would write
// it so, and that Python would see it as statements.
func prove(text []byte, opening, closing line) (place, error) {
	p := place{start: opening.start, end: closing.next, eol: opening.eol}
	p.block.Made, p.ended, _ = opened(string(opening.body))
	if p.eol == "\r" {
		return place{}, damaged(opening.number, "its line ends are lone carriage returns")
	}
	if err := p.parse(text, opening.number); err != nil {
		return place{}, err
	}
	if why := hidden(text, p.start); why != "" {
		return place{}, damaged(opening.number, "%s", why)
	}
	return p, nil
}

func damaged(line int, format string, args ...any) *DamagedError {
	return &DamagedError{Line: line, What: fmt.Sprintf(format, args...)}
}
