package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// directive is one line of an ssh_config. Text is what stands behind the keyword.
type directive struct {
	key  string // in small letters
	args []string
	text string
	at   string // FILE:LINE
}

// configFiles are the files that were read, each once.
type configFiles struct {
	mu   sync.Mutex
	read map[string][]directive
}

// lines parses a file; one that is not there has no lines.
func (c *configFiles) lines(path string, checked bool) ([]directive, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if all, ok := c.read[path]; ok {
		return all, nil
	}
	if checked {
		if err := trusted(path); err != nil {
			return nil, err
		}
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []directive
	for i, line := range strings.Split(string(text), "\n") {
		d, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		if d.key != "" {
			d.at = fmt.Sprintf("%s:%d", path, i+1)
			all = append(all, d)
		}
	}
	if c.read == nil {
		c.read = map[string][]directive{}
	}
	c.read[path] = all
	return all, nil
}

// trusted refuses a configuration that somebody else could have written, as
// OpenSSH does: it says which keys are taken for whose.
func trusted(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return nil // the reading says it
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if ok && ((sys.Uid != 0 && int(sys.Uid) != os.Getuid()) || st.Mode().Perm()&0o022 != 0) {
		return fmt.Errorf("%s: others could have written it (owner %d, mode %04o); chmod 600 it", path, sys.Uid, st.Mode().Perm())
	}
	return nil
}

// parseLine splits a line as OpenSSH does: a keyword, white space or one "=",
// arguments with quotes. A line without anything has the key "".
func parseLine(line string) (directive, error) {
	line = strings.Trim(line, " \t\r\f")
	if line == "" || line[0] == '#' {
		return directive{}, nil
	}
	end := strings.IndexAny(line, " \t=")
	if end < 0 {
		return directive{key: strings.ToLower(line)}, nil
	}
	rest := strings.TrimLeft(line[end:], " \t")
	rest = strings.TrimLeft(strings.TrimPrefix(rest, "="), " \t")
	args, err := splitArgs(rest)
	return directive{key: strings.ToLower(line[:end]), args: args, text: rest}, err
}

func splitArgs(s string) ([]string, error) {
	var all []string
	for {
		s = strings.TrimLeft(s, " \t")
		if s == "" || s[0] == '#' {
			return all, nil
		}
		var word strings.Builder
		quote, i := byte(0), 0
	scan:
		for ; i < len(s); i++ {
			c := s[i]
			switch {
			case c == '\\' && i+1 < len(s) && (strings.IndexByte(`"'\`, s[i+1]) >= 0 || (quote == 0 && s[i+1] == ' ')):
				i++
				word.WriteByte(s[i])
			case quote == 0 && (c == ' ' || c == '\t'):
				break scan
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			case quote != 0 && c == quote:
				quote = 0
			default:
				word.WriteByte(c)
			}
		}
		if quote != 0 {
			return nil, errors.New("a quote is not closed")
		}
		all = append(all, word.String())
		s = s[i:]
	}
}

// several are the keywords that add up; of all others the first one counts.
var several = []string{"identityfile", "certificatefile"}

// evaluation collects what the configuration says about one host.
type evaluation struct {
	files *configFiles
	home  string
	local string // the user here
	name  string // of the host, as given
	final bool   // the second pass, for Match final
	again bool   // there is a Match final
	got   map[string][]directive
}

const maxIncludes = 16

func (e *evaluation) file(path string, user bool, depth int) error {
	if depth > maxIncludes {
		return fmt.Errorf("%s: more than %d Includes deep", path, maxIncludes)
	}
	lines, err := e.files.lines(path, user)
	if err != nil {
		return err
	}
	active := true
	for _, d := range lines {
		if len(d.args) == 0 {
			if active || d.key == "host" || d.key == "match" {
				return fmt.Errorf("%s: %s without a value", d.at, d.key)
			}
			continue
		}
		switch d.key {
		case "host":
			active = matchList(d.args, e.name)
		case "match":
			active, err = e.match(d)
		case "include":
			if active {
				err = e.include(d, user, depth)
			}
		default:
			if active {
				e.take(d)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *evaluation) take(d directive) {
	if (d.key == "proxyjump" && len(e.got["proxycommand"]) > 0) || (d.key == "proxycommand" && len(e.got["proxyjump"]) > 0) {
		return // whichever comes first is the way
	}
	if have := e.got[d.key]; len(have) > 0 {
		if !slices.Contains(several, d.key) || slices.ContainsFunc(have, func(o directive) bool { return o.text == d.text }) {
			return
		}
	}
	e.got[d.key] = append(e.got[d.key], d)
}

func (e *evaluation) include(d directive, user bool, depth int) error {
	for _, pattern := range d.args {
		pattern = expandHome(pattern, e.home)
		if !filepath.IsAbs(pattern) {
			base := "/etc/ssh"
			if user {
				base = filepath.Join(e.home, ".ssh")
			}
			pattern = filepath.Join(base, pattern)
		}
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("%s: %w", d.at, err)
		}
		for _, p := range paths {
			if err := e.file(p, user, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// match evaluates a Match line; every criterion must hold.
func (e *evaluation) match(d directive) (bool, error) {
	holds := true
	for i := 0; i < len(d.args); i++ {
		word, value, joined := strings.Cut(d.args[i], "=")
		word, not := strings.CutPrefix(strings.ToLower(word), "!")
		switch word {
		case "all":
			holds = holds && !not
			continue
		case "canonical", "final":
			e.again = e.again || word == "final"
			holds = holds && e.final != not
			continue
		}
		if !joined {
			if i++; i == len(d.args) {
				return false, fmt.Errorf("%s: Match %s without a value", d.at, word)
			}
			value = d.args[i]
		}
		var is bool
		switch word {
		case "host":
			is = matchList(strings.Split(strings.ToLower(value), ","), strings.ToLower(e.hostName()))
		case "originalhost":
			is = matchList(strings.Split(value, ","), e.name)
		case "user":
			is = matchList(strings.Split(value, ","), e.first("user", e.local))
		case "localuser":
			is = matchList(strings.Split(value, ","), e.local)
		default:
			if holds {
				return false, &unhonoured{d.at, "Match " + word}
			}
		}
		holds = holds && is != not
	}
	return holds, nil
}

func (e *evaluation) first(key, otherwise string) string {
	if d := e.got[key]; len(d) > 0 {
		return d[0].args[0]
	}
	return otherwise
}

// hostName is the name to connect to, as far as it is known by now.
func (e *evaluation) hostName() string {
	return strings.NewReplacer("%%", "%", "%h", e.name).Replace(e.first("hostname", e.name))
}

// unhonoured is a line that only OpenSSH itself can follow.
type unhonoured struct{ at, what string }

func (u *unhonoured) Error() string {
	return fmt.Sprintf("%s: %s cannot be followed here", u.at, u.what)
}

// matchList holds a name against patterns; one with ! that fits is a no.
func matchList(patterns []string, name string) bool {
	any := false
	for _, p := range patterns {
		p, not := strings.CutPrefix(p, "!")
		if matchPattern(p, name) {
			if not {
				return false
			}
			any = true
		}
	}
	return any
}

// matchPattern knows * and ?, and nothing else.
func matchPattern(p, s string) bool {
	for ; p != ""; p = p[1:] {
		switch {
		case p[0] == '*':
			for i := 0; i <= len(s); i++ {
				if matchPattern(p[1:], s[i:]) {
					return true
				}
			}
			return false
		case s == "" || (p[0] != '?' && p[0] != s[0]):
			return false
		}
		s = s[1:]
	}
	return s == ""
}

func expandHome(path, home string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return filepath.Join(home, path[1:])
	}
	return path
}
