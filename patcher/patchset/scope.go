package patchset

import (
	"bytes"
	"sort"
	"strings"
)

// Scope is a class or function of a Python text.
type Scope struct {
	Name  string // qualified, as "Class.method", without "<locals>"
	First int    // 1-based line of the first decorator, or of class, def, async
	Last  int    // line where the body ends
	Tail  int    // Last, or the last of the blank and comment lines behind it
}

// Scopes returns the classes and functions of a Python text by their first
// line, an outer one before those in it. It splits the text as Python's own
// tokenizer does, so what stands in strings and comments is no code. It never
// fails: of text that is not Python it says something, but nothing useful.
// Lines are counted by "\n", as diffs count them.
func Scopes(text []byte) []Scope {
	s := scanner{text: text}
	if bytes.HasPrefix(text, []byte(bom)) {
		s.pos = len(bom)
	}
	for s.startLine() {
		s.statement()
	}
	behind := s.lineAt(len(text))
	if len(text) > 0 && !terminated(text) {
		behind++
	}
	s.closeScopes(0, behind)
	return s.scopes
}

// ScopeAt returns the name of the innermost scope around a line, "" at module
// level.
func ScopeAt(scopes []Scope, line int) string {
	name := ""
	for _, s := range scopes {
		if s.First > line {
			break
		}
		if line <= s.Last {
			name = s.Name
		}
	}
	return name
}

// scanner walks a Python text statement by statement.
type scanner struct {
	text    []byte
	pos     int
	counted int // lineAt has counted up to this offset
	lines   int // and found so many newlines

	scopes []Scope
	open   []openScope // innermost last, columns ascending

	column  int     // indentation of the statement
	start   int     // where its first token is
	end     int     // where its last token ends
	last    int     // line of end
	decor   int     // line of the first decorator waiting for its def, 0 if none
	nesting []frame // brackets and f-strings around pos
}

// openScope is a scope whose end has not been seen.
type openScope struct {
	index  int // in scopes
	column int
}

// lineAt returns the 1-based line of an offset; offsets must ascend.
func (s *scanner) lineAt(offset int) int {
	s.lines += bytes.Count(s.text[s.counted:offset], []byte{'\n'})
	s.counted = offset
	return s.lines + 1
}

// startLine goes to the first token of the next statement and measures its
// indentation; that of blank lines and comments does not count. It returns
// false at the end.
func (s *scanner) startLine() bool {
	for s.pos < len(s.text) {
		s.column = s.indentation()
		switch {
		case s.pos == len(s.text):
		case s.text[s.pos] == '#':
			s.skipComment()
		case isNewline(s.text[s.pos]):
			s.pos++
		default:
			s.start = s.pos
			return true
		}
	}
	return false
}

// indentation skips white space and returns the column behind it. A line that
// is continued before its first token has the indentation of its first part.
func (s *scanner) indentation() int {
	column, first := 0, 0
	for ; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; {
		case c == ' ':
			column++
		case c == '\t':
			column = (column/8 + 1) * 8
		case c == '\f':
			column = 0
		case c == '\\' && s.newlineAt(s.pos+1) > 0:
			if first == 0 {
				first = column
			}
			column = 0
			s.pos += s.newlineAt(s.pos + 1)
		case first > 0:
			return first
		default:
			return column
		}
	}
	return column
}

// statement reads one logical line and keeps the scopes.
func (s *scanner) statement() {
	line := s.lineAt(s.start)
	s.closeScopes(s.column, line)
	name := s.definition()
	switch {
	case name != "":
		s.openScope(name, line)
		s.decor = 0
	case s.text[s.start] != '@':
		s.decor = 0
	case s.decor == 0:
		s.decor = line
	}
	s.tokens()
	s.last = s.lineAt(s.end)
}

func (s *scanner) openScope(name string, line int) {
	if n := len(s.open); n > 0 {
		name = s.scopes[s.open[n-1].index].Name + "." + name
	}
	if s.decor > 0 {
		line = s.decor
	}
	s.open = append(s.open, openScope{len(s.scopes), s.column})
	s.scopes = append(s.scopes, Scope{Name: name, First: line})
}

// closeScopes ends the scopes that a statement at this column and line is
// outside of; their bodies end with the statement before it.
func (s *scanner) closeScopes(column, line int) {
	n := len(s.open)
	for ; n > 0 && s.open[n-1].column >= column; n-- {
		scope := &s.scopes[s.open[n-1].index]
		scope.Last = s.last
		scope.Tail = max(s.last, line-1)
	}
	s.open = s.open[:n]
}

// definition returns the name that the statement at start defines as a class
// or function, "" if it does not.
func (s *scanner) definition() string {
	i := s.start
	word := s.word(i)
	if string(word) == "async" {
		i = s.skipBlank(i + len(word))
		word = s.word(i)
	}
	if string(word) != "def" && string(word) != "class" {
		return ""
	}
	return string(s.word(s.skipBlank(i + len(word))))
}

// skipBlank returns the offset behind blanks and continued line ends.
func (s *scanner) skipBlank(i int) int {
	for i < len(s.text) {
		switch c := s.text[i]; {
		case isBlank(c):
			i++
		case c == '\\' && s.newlineAt(i+1) > 0:
			i += 1 + s.newlineAt(i+1)
		default:
			return i
		}
	}
	return i
}

// scopeIndex answers where a hunk's lines are in logarithmic time.
type scopeIndex struct {
	named map[string][]Scope // of the names that hunks have; ascending and disjoint
	top   []Scope            // those in no other; ascending and disjoint
}

func indexScopes(text []byte, hunks []Hunk) scopeIndex {
	x := scopeIndex{named: map[string][]Scope{}}
	for _, h := range hunks {
		x.named[h.Scope] = nil
	}
	for _, s := range Scopes(text) {
		if named, wanted := x.named[s.Name]; wanted {
			x.named[s.Name] = append(named, s)
		}
		if !strings.Contains(s.Name, ".") {
			x.top = append(x.top, s)
		}
	}
	return x
}

// within reports whether the lines from first to last are in one scope of that
// name. The blank and comment lines behind a body count as in it.
func (x scopeIndex) within(name string, first, last int) bool {
	scopes := x.named[name]
	i := sort.Search(len(scopes), func(i int) bool { return scopes[i].First > first })
	return i > 0 && last <= scopes[i-1].Tail
}

// atModuleLevel reports whether the lines from first to last are in no class
// or function, but for such as begin and end among them.
func (x scopeIndex) atModuleLevel(first, last int) bool {
	i := sort.Search(len(x.top), func(i int) bool { return x.top[i].Last >= first })
	for ; i < len(x.top) && x.top[i].First <= last; i++ {
		if x.top[i].First < first || last < x.top[i].Last {
			return false
		}
	}
	return true
}

// splits reports whether line and the one before it are in the same class or
// function, so that something between them would be in it too.
func (x scopeIndex) splits(line int) bool {
	i := sort.Search(len(x.top), func(i int) bool { return x.top[i].Last >= line })
	return i < len(x.top) && x.top[i].First < line
}
