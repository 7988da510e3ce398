package patchset

import "strings"

// frame is a construct in which a newline does not end the statement. The
// frames are a stack of our own, for text can nest them deeper than Go's.
type frame struct {
	kind   byte // one of the constants below
	quote  byte // of the f-string that kind is a part of
	triple bool
}

const (
	inBracket = '('
	inLiteral = 'f' // the text of an f-string
	inField   = '{' // the expression in its braces
	inSpec    = ':' // the format behind the expression, text again
)

func (s *scanner) top() frame {
	if n := len(s.nesting); n > 0 {
		return s.nesting[n-1]
	}
	return frame{}
}

func (s *scanner) push(f frame) {
	s.nesting = append(s.nesting, f)
	s.pos++
}

func (s *scanner) pop() { s.nesting = s.nesting[:len(s.nesting)-1] }

// tokens reads to the end of the statement.
func (s *scanner) tokens() {
	for s.pos < len(s.text) {
		top := s.top()
		if top.kind == inLiteral || top.kind == inSpec {
			s.literal(top)
			s.end = s.pos
			continue
		}
		switch c := s.text[s.pos]; {
		case isNewline(c):
			s.pos++
			if top.kind == 0 {
				return
			}
		case isBlank(c):
			s.pos++
		case c == '#':
			s.skipComment()
		case c == '\\' && s.newlineAt(s.pos+1) > 0:
			s.pos += 1 + s.newlineAt(s.pos+1)
		default:
			s.token(c, top)
			s.end = min(s.pos, len(s.text))
		}
	}
}

// token reads one token, or a part of one: operators and numbers do not matter.
func (s *scanner) token(c byte, top frame) {
	switch {
	case c == '"' || c == '\'':
		s.plainString()
	case isNameByte(c):
		word := s.word(s.pos)
		s.pos += len(word)
		s.stringBehind(word)
	case c == '(' || c == '[' || c == '{':
		s.push(frame{kind: inBracket})
	case c == ')' || c == ']' || c == '}':
		if top.kind == inBracket || top.kind == inField && c == '}' {
			s.pop()
		}
		s.pos++
	case c == ':' && top.kind == inField:
		s.push(frame{inSpec, top.quote, top.triple})
	default:
		s.pos++
	}
}

// stringBehind reads a string that starts at pos if word is a prefix of one.
func (s *scanner) stringBehind(word []byte) {
	if len(word) > 2 || s.pos == len(s.text) || s.text[s.pos] != '"' && s.text[s.pos] != '\'' {
		return
	}
	switch strings.ToLower(string(word)) {
	case "f", "t", "fr", "rf", "tr", "rt":
		quote := s.text[s.pos]
		triple := s.tripleAt(s.pos)
		if triple {
			s.pos += 2
		}
		s.push(frame{inLiteral, quote, triple})
	case "r", "b", "u", "br", "rb":
		s.plainString()
	}
}

// tripleAt reports whether three equal quotes stand at an offset.
func (s *scanner) tripleAt(i int) bool {
	return i+2 < len(s.text) && s.text[i] == s.text[i+1] && s.text[i] == s.text[i+2]
}

// plainString reads a string without fields. A backslash hides the quote
// behind it in raw strings as well.
func (s *scanner) plainString() {
	quote, triple := s.text[s.pos], s.tripleAt(s.pos)
	s.pos++
	if triple {
		s.pos += 2
	}
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == '\\':
			s.skipEscape()
		case c == quote && triple && s.tripleAt(s.pos):
			s.pos += 3
			return
		case c == quote && !triple:
			s.pos++
			return
		case isNewline(c) && !triple: // not Python; the line is lost, the rest is not
			return
		default:
			s.pos++
		}
	}
}

func (s *scanner) skipEscape() {
	s.pos = min(s.pos+1+max(1, s.newlineAt(s.pos+1)), len(s.text))
}

// literal reads the next piece of an f-string's text or of a format in it.
func (s *scanner) literal(f frame) {
	c := s.text[s.pos]
	next := byte(0)
	if s.pos+1 < len(s.text) {
		next = s.text[s.pos+1]
	}
	switch {
	case c == '\\' && next != '{' && next != '}':
		s.skipEscape()
	case c == '{' && next == '{' && f.kind == inLiteral:
		s.pos += 2
	case c == '{':
		s.push(frame{inField, f.quote, f.triple})
	case c == '}' && f.kind == inSpec:
		s.pop()
		s.pop() // the field
		s.pos++
	case c == f.quote && f.triple && s.tripleAt(s.pos):
		s.pos += 3
		s.endString()
	case c == f.quote && !f.triple:
		s.pos++
		s.endString()
	case isNewline(c) && !f.triple: // not Python
		s.endString()
	default:
		s.pos++
	}
}

// endString leaves the f-string, from a format in it as well.
func (s *scanner) endString() {
	for s.top().kind != inLiteral {
		s.pop()
	}
	s.pop()
}

func (s *scanner) skipComment() {
	for s.pos < len(s.text) && !isNewline(s.text[s.pos]) {
		s.pos++
	}
}

// newlineAt returns the length of the line end at an offset, 0 if there is none.
func (s *scanner) newlineAt(i int) int {
	switch {
	case i >= len(s.text) || !isNewline(s.text[i]):
		return 0
	case s.text[i] == '\r' && i+1 < len(s.text) && s.text[i+1] == '\n':
		return 2
	}
	return 1
}

// word returns the identifier or keyword at an offset.
func (s *scanner) word(start int) []byte {
	end := start
	for end < len(s.text) && (isNameByte(s.text[end]) || end > start && isDigit(s.text[end])) {
		end++
	}
	return s.text[start:end]
}

// isNewline: Python ends a line at a lone carriage return too.
func isNewline(c byte) bool { return c == '\n' || c == '\r' }

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\f' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isNameByte reports whether an identifier may start with the byte, or with a
// character of several bytes that it is one of.
func isNameByte(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
