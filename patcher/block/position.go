package block

import (
	"bytes"
	"errors"
	"fmt"
)

// SourceError says why a text cannot take a block.
type SourceError struct {
	Line int // counted from 1
	What string
}

func (e *SourceError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.What) }

// Position returns the offset where Set inserts a block: after a byte order
// mark, #! and coding lines, the docstring and the last from __future__
// statement, each with the rest of its logical line, and before anything that
// runs. The error is a *SourceError: the text is no Python as far as there, or
// its bytes cannot be understood.
func Position(text []byte) (int, error) {
	pos, coding, err := preamble(text)
	if err != nil {
		return 0, err
	}
	l := &lexer{text: text, at: pos}
	pos, err = l.head(pos)
	var broken *broken
	if errors.As(err, &broken) {
		return 0, &SourceError{numberAt(text, broken.at), broken.what}
	}
	// What was read must be what Python reads. In a two-byte encoding the
	// second byte may be a backslash or a quote.
	if coding == twoByte && bytes.ContainsFunc(text[:l.at], func(r rune) bool { return r >= 0x80 }) {
		return 0, &SourceError{1, "letters above ASCII at the top, in an encoding where they may hide quotes"}
	}
	return pos, nil
}

var (
	codingLine = pattern(`^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)`)
	emptyLine  = pattern(`^[ \t\f]*(#.*)?$`)
)

// preamble returns the offset behind the byte order mark, the #! line and the
// coding line, which is the first one, or the second after an empty one
// (PEP 263).
func preamble(text []byte) (pos int, coding encoding, err error) {
	pos = len(text) - len(bytes.TrimPrefix(text, bom))
	switch zero := bytes.IndexByte(text, 0); {
	case zero >= 0:
		return 0, 0, &SourceError{numberAt(text, zero), "a NUL byte"}
	case eolOf(text) == "\r":
		return 0, 0, &SourceError{1, "its line ends are lone carriage returns"}
	}
	for l := range lines(text) {
		if found := codingLine().FindSubmatch(l.body); found != nil {
			if coding = encodingOf(string(found[1])); coding == unknown {
				return 0, 0, &SourceError{l.number, fmt.Sprintf("the encoding %s may read ASCII as something else", found[1])}
			}
			return l.next, coding, nil
		}
		if l.number == 1 && bytes.HasPrefix(l.body, []byte("#!")) {
			pos = l.next
		}
		if l.number == 2 || !emptyLine().Match(l.body) {
			break
		}
	}
	return pos, plain, nil
}

// statement is what head needs to know of a simple statement.
type statement byte

const (
	stNone   statement = iota // the end of the text
	stEmpty                   // nothing before the ; or the line end
	stText                    // a string and nothing else
	stFuture                  // from __future__ import ...
	stOther                   // anything else; read only as far as needed to know it
)

// head returns the offset behind the docstring and the __future__ statements,
// pos if there are none. Strings between them are passed over, as Python up to
// 3.11 does.
func (l *lexer) head(pos int) (int, error) {
	counts := false // one of them is on this logical line
	for first := true; ; first = false {
		what, last, err := l.statement()
		switch {
		case err != nil:
			return 0, err
		case what == stNone:
			return pos, nil
		case what == stOther && counts:
			return l.rest(last)
		case what == stOther:
			return pos, nil
		}
		counts = counts || what == stFuture || what == stText && first
		if last.kind == tokNewline {
			if counts {
				pos = last.end
			}
			counts = false
		}
	}
}

// rest reads on from t to the end of the logical line and returns its offset.
func (l *lexer) rest(t token) (int, error) {
	for t.kind != tokNewline {
		var err error
		if t, err = l.next(); err != nil {
			return 0, err
		}
	}
	return t.end, nil
}

// statement reads one simple statement and what ends it.
func (l *lexer) statement() (statement, token, error) {
	t, err := l.next()
	switch {
	case err != nil:
		return stOther, t, err
	case t.kind == tokEnd:
		return stNone, t, nil
	case t.kind == tokNewline:
		return stEmpty, t, nil
	case l.is(t, "from"):
		return l.future()
	default:
		return l.string(t)
	}
}

// future reads on after a from. Dots before __future__ make no difference to
// Python up to 3.12, which takes a relative import for the real one.
func (l *lexer) future() (statement, token, error) {
	t, err := l.next()
	for err == nil && l.is(t, ".") {
		t, err = l.next()
	}
	if err != nil || !l.is(t, "__future__") {
		return stOther, t, err
	}
	for {
		if t, err := l.next(); err != nil || l.ends(t) {
			return stFuture, t, err
		}
	}
}

// string reads a statement that begins with t: brackets, strings, brackets.
// ("a")("b") is a call and "a", a tuple; neither is a docstring.
func (l *lexer) string(t token) (statement, token, error) {
	strings, closed := 0, false
	for {
		switch {
		case strings > 0 && l.ends(t):
			return stText, t, nil
		case l.is(t, "(") && strings == 0:
		case l.is(t, ")") && strings > 0:
			closed = true
		case t.kind == tokString && !closed && !bytes.ContainsAny(l.prefix(t), "bB"):
			strings++
		default:
			return stOther, t, nil
		}
		var err error
		if t, err = l.next(); err != nil {
			return stOther, t, err
		}
	}
}

// prefix is what stands before the quotes of a string.
func (l *lexer) prefix(t token) []byte {
	s := l.text[t.start:t.end]
	return s[:bytes.IndexAny(s, `"'`)]
}

func (l *lexer) is(t token, s string) bool { return string(l.text[t.start:t.end]) == s }

// ends reports that t ends a simple statement.
func (l *lexer) ends(t token) bool {
	return t.kind == tokNewline || t.depth == 0 && l.is(t, ";")
}

// hidden says why a block at an offset would not be read as statements, "" if
// it would.
func hidden(text []byte, start int) string {
	l := &lexer{text: text}
	l.at = len(text) - len(bytes.TrimPrefix(text, bom))
	last := token{kind: tokNewline}
	for {
		t, err := l.next()
		switch {
		case last.end > start:
			return "it stands in a string"
		case err != nil || t.kind == tokEnd:
			return "what stands above it is no Python"
		case t.start < start:
			last = t
		case last.kind != tokNewline || t.depth > 0:
			return "it stands in the middle of a statement"
		default:
			return ""
		}
	}
}
