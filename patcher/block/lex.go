package block

import (
	"bytes"
	"slices"
	"strings"
)

type kind byte

const (
	tokEnd     kind = iota // end of the text
	tokNewline             // end of a logical line
	tokName                // also a keyword
	tokString              // a string or bytes literal, with its prefix
	tokFormat              // an f-string or t-string; what stands in its braces follows as tokens
	tokOther               // an operator or a number
)

// token is text[start:end]; depth is how many brackets are open around it.
type token struct {
	kind       kind
	start, end int
	depth      int
}

// lexer cuts Python source into tokens, without comments and blank lines. It
// accepts what any Python from 2.7 to 3.14 accepts, and more. Bytes above 0x7f
// count as letters, so the encoding must be one that keeps ASCII as it is.
type lexer struct {
	text   []byte
	at     int
	depth  int
	inside bool    // a logical line has begun
	format int     // how many f-strings are open
	queue  []token // what was found inside an f-string
}

// next returns the next token. The error is a *broken: a string, a bracket or a
// continuation that does not end.
func (l *lexer) next() (token, error) {
	if len(l.queue) > 0 {
		t := l.queue[0]
		l.queue = l.queue[1:]
		return t, nil
	}
	if err := l.skip(); err != nil {
		return token{}, err
	}
	if size := eolSize(l.text, l.at); size > 0 || l.at == len(l.text) {
		return l.lineEnd(size)
	}
	l.inside = true
	return l.scan()
}

// lineEnd ends a logical line. At the end of the text a last line without a
// line end gets an empty one.
func (l *lexer) lineEnd(size int) (token, error) {
	t := token{kind: tokNewline, start: l.at, end: l.at + size}
	switch {
	case l.depth > 0:
		return t, fail(l.at, "a bracket is not closed")
	case !l.inside:
		t.kind = tokEnd
	}
	l.inside = false
	l.at = t.end
	return t, nil
}

// skip passes over what is no token: space, comments, continuations, and line
// ends inside brackets or on blank lines.
func (l *lexer) skip() error {
	for l.at < len(l.text) {
		c, size := l.text[l.at], eolSize(l.text, l.at)
		switch {
		case c == ' ' || c == '\t' || c == '\f':
			l.at++
		case c == '#':
			l.at += len(lineAt(l.text, l.at).body)
		case size > 0 && (l.depth > 0 || !l.inside):
			l.at += size
		case c == '\\' && (eolSize(l.text, l.at+1) > 0 || l.at+1 == len(l.text)):
			l.at += 1 + eolSize(l.text, l.at+1)
			if l.at == len(l.text) {
				return fail(l.at-1, "the text ends in a continuation")
			}
		default:
			return nil
		}
	}
	return nil
}

// scan reads the token at l.at, which is neither a line end nor the end.
func (l *lexer) scan() (token, error) {
	start, c := l.at, l.text[l.at]
	switch {
	case letter(c) || digit(c):
		for l.at < len(l.text) && (letter(l.text[l.at]) || digit(l.text[l.at])) {
			l.at++
		}
		switch prefix := strings.ToLower(string(l.text[start:l.at])); {
		case l.at < len(l.text) && quote(l.text[l.at]) && slices.Contains(prefixes, prefix):
			return l.str(start, prefix)
		case digit(c):
			return token{tokOther, start, l.at, l.depth}, nil
		}
		return token{tokName, start, l.at, l.depth}, nil
	case quote(c):
		return l.str(start, "")
	default:
		return l.operator(), nil
	}
}

var prefixes = []string{"r", "u", "b", "br", "rb", "ur", "f", "fr", "rf", "t", "tr", "rt"}

// operators of more than one byte, the longer ones first.
var operators = []string{"**=", "//=", ">>=", "<<=", "==", "!=", "<=", ">=", ":=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "@=", "->", "**", "//", "<<", ">>", "<>"}

func (l *lexer) operator() token {
	t := token{tokOther, l.at, l.at + 1, l.depth}
	for _, op := range operators {
		if bytes.HasPrefix(l.text[l.at:], []byte(op)) {
			t.end = l.at + len(op)
			break
		}
	}
	l.at = t.end
	switch l.text[t.start] {
	case '(', '[', '{':
		l.depth++
	case ')', ']', '}':
		l.depth = max(l.depth-1, 0)
		t.depth = l.depth
	}
	return t
}

// str reads the literal that begins at start; l.at is at its first quote.
func (l *lexer) str(start int, prefix string) (token, error) {
	t := token{tokString, start, 0, l.depth}
	if strings.ContainsAny(prefix, "ft") {
		t.kind = tokFormat
	}
	s := str{raw: strings.Contains(prefix, "r"), format: t.kind == tokFormat, quote: l.text[l.at : l.at+1]}
	if q := l.text[l.at:]; len(q) >= 3 && q[1] == q[0] && q[2] == q[0] {
		s.quote = q[:3]
	}
	l.at += len(s.quote)
	queue := l.queue
	l.queue = nil
	if err := l.body(s, start); err != nil {
		return token{}, err
	}
	t.end = l.at
	l.queue = append(queue, l.queue...)
	return t, nil
}

// str is the kind of a literal that is being read.
type str struct {
	raw, format bool
	quote       []byte // one or three
}

// body reads up to the closing quote and over it.
func (l *lexer) body(s str, start int) error {
	for l.at < len(l.text) {
		rest := l.text[l.at:]
		size := eolSize(l.text, l.at)
		switch {
		case bytes.HasPrefix(rest, s.quote):
			l.at += len(s.quote)
			return nil
		case rest[0] == '\\':
			l.escape(s)
		case size > 0 && len(s.quote) == 1:
			return fail(start, "a string does not end")
		case size > 0:
			l.at += size
		case s.format && bytes.HasPrefix(rest, []byte("{{")):
			l.at += 2
		case s.format && rest[0] == '{':
			if err := l.field(s, start); err != nil {
				return err
			}
		default:
			l.at++
		}
	}
	return fail(start, "a string does not end")
}

// escape passes over a backslash and what it protects: a quote, a line end,
// and in an f-string the braces of \N{DASH}, but no other brace.
func (l *lexer) escape(s str) {
	l.at++
	rest := l.text[l.at:]
	switch {
	case len(rest) == 0:
	case s.format && !s.raw && bytes.HasPrefix(rest, []byte("N{")):
		l.at += 2
	case s.format && (rest[0] == '{' || rest[0] == '}'):
	default:
		l.at += max(1, eolSize(l.text, l.at))
	}
}

func letter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func quote(c byte) bool { return c == '"' || c == '\'' }

// broken says where a token begins that does not end.
type broken struct {
	at   int
	what string
}

func fail(at int, what string) error { return &broken{at, what} }

func (e *broken) Error() string { return e.what }
