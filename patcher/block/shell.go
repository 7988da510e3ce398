package block

import (
	"bytes"
	"slices"
	"strings"
)

// Shell returns the lines of a shell profile, an /etc/environment or a
// systemd-like file that set one of the names: N=1, export N=1, declare -x N=1,
// setenv N 1, set -gx N 1, Environment="N=1" and their kind, alone or beside
// others. Like Hand it is a rule of thumb and never fails.
func Shell(text []byte, names []string) []Line {
	if !mayName(text, names) {
		return nil
	}
	var out []Line
	for l := range lines(text) {
		var seen []string
		for _, name := range shellSets(string(l.body)) {
			if slices.Contains(names, name) && !slices.Contains(seen, name) {
				seen = append(seen, name)
				out = append(out, Line{l.number, name, strings.TrimSpace(string(l.body))})
			}
		}
	}
	return out
}

// mayName says whether one of the names stands in a text, quotes and escapes in
// it or not. Most profiles need no closer look.
func mayName(text []byte, names []string) bool {
	bare := make([]byte, 0, len(text))
	for _, b := range text {
		if b != '\\' && !quote(b) {
			bare = append(bare, b)
		}
	}
	return slices.ContainsFunc(names, func(name string) bool { return bytes.Contains(bare, []byte(name)) })
}

// shellSets returns the variables that a line sets.
func shellSets(body string) []string {
	if strings.HasPrefix(strings.TrimSpace(body), ";") {
		return nil // a comment in a unit file
	}
	var out []string
	for _, command := range shellCommands(body) {
		out = append(out, commandSets(command)...)
	}
	return out
}

// shellCommands cuts a line into commands and their words, without quotes and
// without the comment.
func shellCommands(body string) [][]string {
	var c cutter
	for i := 0; i < len(body); i++ {
		switch b := body[i]; {
		case b == '\\' && c.quoted != '\'' && i+1 < len(body):
			i++
			c.add(body[i])
		case b == c.quoted:
			c.quoted = 0
		case c.quoted != 0:
			c.add(b)
		case quote(b):
			c.quoted, c.begun = b, true
		case b == '#' && !c.begun:
			i = len(body)
		case b == ' ' || b == '\t':
			c.endWord()
		case strings.IndexByte(";&|()`", b) >= 0:
			c.endCommand()
		default:
			c.add(b)
		}
	}
	c.endCommand()
	return c.commands
}

// cutter collects what shellCommands finds.
type cutter struct {
	commands [][]string
	words    []string
	word     []byte
	begun    bool // there is a word, perhaps an empty one
	quoted   byte // the quote that is open
}

func (c *cutter) add(b byte) {
	c.word = append(c.word, b)
	c.begun = true
}

func (c *cutter) endWord() {
	if c.begun {
		c.words = append(c.words, string(c.word))
	}
	c.word, c.begun = c.word[:0], false
}

func (c *cutter) endCommand() {
	c.endWord()
	c.commands = append(c.commands, c.words)
	c.words = nil
}

var (
	// shellWords may stand before a command.
	shellWords = []string{"if", "then", "else", "elif", "do", "while", "until", "!", "{", "time", "exec", "command", "builtin"}

	// shellTalk are commands whose words, though they look like it, set nothing.
	shellTalk = []string{"echo", "printf", "print", "test", "[", "[[", "expr", "grep", "egrep", "sed", "awk", "unset", "logger", "case", "for"}
)

// commandSets returns the variables that a command sets.
func commandSets(words []string) []string {
	for len(words) > 0 && slices.Contains(shellWords, words[0]) {
		words = words[1:]
	}
	var out []string
	for len(words) > 0 {
		name, ok := assignment(words[0])
		if !ok || unitKey(words[0]) != words[0] {
			break
		}
		out = append(out, name)
		words = words[1:]
	}
	switch {
	case len(words) == 0 || slices.Contains(shellTalk, words[0]):
		return out
	case words[0] == "setenv" && len(words) > 1:
		return append(out, words[1])
	case words[0] == "set":
		out = append(out, fishSets(words)...)
	}
	for _, word := range words {
		if name, ok := assignment(unitKey(word)); ok {
			out = append(out, name)
		}
	}
	return out
}

// unitKey takes the key of a unit file off a word.
func unitKey(word string) string {
	for _, key := range []string{"Environment=", "DefaultEnvironment=", "environment="} {
		if rest, ok := strings.CutPrefix(word, key); ok {
			return rest
		}
	}
	return word
}

// assignment reads N=1, N+=1, =N=1 (behind a key and a space) and ${N:=1}.
func assignment(word string) (string, bool) {
	word = strings.TrimPrefix(strings.TrimPrefix(word, "="), "${")
	name, value, ok := strings.Cut(word, "=")
	name = strings.TrimRight(name, "+:")
	return name, ok && !strings.HasPrefix(value, "=") && lawful(name)
}

// fishSets reads set -x N 1 and its kind; without -x nothing is exported.
func fishSets(words []string) []string {
	exported := false
	for _, word := range words[1:] {
		switch {
		case word == "--export" || strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && strings.Contains(word, "x"):
			exported = true
		case !strings.HasPrefix(word, "-") && exported:
			return []string{word}
		case !strings.HasPrefix(word, "-"):
			return nil
		}
	}
	return nil
}
