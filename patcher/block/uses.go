package block

import (
	"slices"
	"strings"
)

// source answers how the tokens of a text are used. Tokens are named by their
// index, and any index may be asked for.
type source struct {
	text     []byte
	tokens   []token
	contexts []context
}

// context is where in its statement a token stands.
type context struct {
	first  int  // the first token of the statement
	open   int  // the bracket around it, -1 if there is none
	loop   bool // a for stands before it
	target bool // an assignment follows, with nothing between that is no target
}

// read cuts text into tokens and finds their contexts, in time linear in its length.
func read(text []byte) source {
	s := source{text: text, tokens: scan(text)}
	s.contexts = make([]context, len(s.tokens))
	first, loop, open := 0, false, []int{-1}
	for i := range s.tokens {
		if s.ends(i - 1) {
			first, loop, open = i, false, open[:1]
		}
		if len(open) > 1 && s.is(i, ")", "]", "}") {
			open = open[:len(open)-1]
		}
		s.contexts[i] = context{first: first, open: open[len(open)-1], loop: loop}
		if s.is(i, "(", "[", "{") {
			open = append(open, i)
		}
		loop = loop || s.is(i, "for")
	}
	target := false
	for i := len(s.tokens) - 1; i >= 0; i-- {
		switch {
		case s.ends(i) || s.tokens[i].depth == 0 && s.is(i, stops...):
			target = false
		case s.tokens[i].depth == 0 && s.is(i, assignments...):
			target = true
		}
		s.contexts[i].target = target
	}
	return s
}

func (s source) at(i int) token {
	if i < 0 || i >= len(s.tokens) {
		return token{kind: tokNewline}
	}
	return s.tokens[i]
}

func (s source) is(i int, words ...string) bool {
	t := s.at(i)
	return slices.Contains(words, string(s.text[t.start:t.end]))
}

// ends reports that a token is the end of a statement.
func (s source) ends(i int) bool {
	t := s.at(i)
	return t.kind == tokNewline || t.depth == 0 && s.is(i, ";")
}

// names returns the variable that the token at i names, if it looks as if it
// were set there.
func (s source) names(i int) (string, bool) {
	t := s.at(i)
	word := string(s.text[t.start:t.end])
	switch t.kind {
	case tokName: // environ.update(N="1"), dict(N="1")
		return word, t.depth > 0 && s.is(i+1, "=")
	case tokString:
		word = strings.Trim(word[strings.IndexAny(word, `"'`):], word[len(word)-1:])
		return word, !s.reads(i)
	default:
		return "", false
	}
}

// readers are functions that do not set what their first argument names.
var readers = []string{"get", "getenv", "getenvb", "pop", "unsetenv", "delenv", "has_key", "get_bool_env_var", "__getitem__", "__contains__", "__delitem__"}

// reads reports that the string at i is used only to read a variable, to take
// it away, or for nothing.
func (s source) reads(i int) bool {
	switch {
	case s.ends(i-1) && s.ends(i+1):
		return true // a statement of its own, as a docstring is
	case s.is(i+1, "in", "==", "!=") || s.is(i+1, "not") && s.is(i+2, "in"):
		return true
	case s.is(i-1, "==", "!="):
		return true
	case s.is(i-1, "(") && s.is(i-2, readers...):
		return true
	case s.is(i-1, "[") && s.is(i+1, "]") && s.indexes(i-1):
		return !s.assigned(i + 1)
	default:
		return s.member(i)
	}
}

// notIndexed are the keywords that a list may follow.
var notIndexed = []string{"in", "return", "yield", "and", "or", "not", "if", "else", "is", "lambda", "print", "assert", "del"}

// indexes reports that the bracket at i follows something that it indexes and
// does not begin a list.
func (s source) indexes(i int) bool {
	switch s.at(i - 1).kind {
	case tokName:
		return !s.is(i-1, notIndexed...)
	case tokString, tokFormat:
		return true
	default:
		return s.is(i-1, ")", "]", "}")
	}
}

var (
	assignments = []string{"=", "+=", "|=", "&=", "-=", "*=", "/=", "//=", "%=", "**=", ">>=", "<<=", "^=", "@="}
	stops       = []string{"if", "else", "for", "and", "or", "in", "is", "not", "lambda", "==", "!=", "<", ">", "<=", ">="}

	// noTargets begin a statement whose later assignments are those of another.
	noTargets = []string{"if", "elif", "while", "for", "with", "return", "assert", "del", "except"}
)

// assigned reports that the bracket at i closes the target of an assignment,
// perhaps one of several: a[X], b = 1, 2.
func (s source) assigned(i int) bool {
	if s.is(i+1, assignments...) {
		return true
	}
	c := s.contexts[i]
	return c.open < 0 && c.target && !s.is(c.first, noTargets...)
}

// member reports that the string at i stands in the brackets behind an in that
// asks (if k in ("A", "B")); a loop over the names may well set them.
func (s source) member(i int) bool {
	open := s.contexts[i].open
	return open > 0 && s.is(open-1, "in") && !s.contexts[open-1].loop
}
