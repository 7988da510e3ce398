package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
