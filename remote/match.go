package remote

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

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
