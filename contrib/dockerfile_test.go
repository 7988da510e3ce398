package contrib

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// stage is one FROM of a Dockerfile with what follows it.
type stage struct {
	base, name string
	steps      []step
}

// step is one instruction: RUN has a shell's line, the others have words.
type step struct {
	name  string
	line  string
	words []string
	flags map[string]string
}

var variable = regexp.MustCompile(`\$\{(\w+)\}`)

// dockerfile reads the instructions that ours use; any other fails the test, so
// that none is left out unseen.
func dockerfile(path string) (all []stage, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	args := map[string]string{}
	for _, line := range strings.Split(strings.ReplaceAll(string(text), "\\\n", ""), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		line = variable.ReplaceAllStringFunc(line, func(v string) string {
			value, ok := args[v[2:len(v)-1]]
			if !ok {
				err = errors.Join(err, fmt.Errorf("%s: %s has no value", path, v))
			}
			return value
		})
		s := step{flags: map[string]string{}}
		s.name, s.line, _ = strings.Cut(line, " ")
		for strings.HasPrefix(s.line, "--") {
			var flag string
			flag, s.line, _ = strings.Cut(s.line, " ")
			name, value, _ := strings.Cut(flag[2:], "=")
			s.flags[name] = value
		}
		if s.words = strings.Fields(s.line); s.line[0] == '[' {
			if err := json.Unmarshal([]byte(s.line), &s.words); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", path, line, err)
			}
		}
		switch {
		case s.name == "ARG":
			name, value, _ := strings.Cut(s.line, "=")
			args[name] = value
		case s.name == "FROM":
			st := stage{base: s.words[0]}
			if len(s.words) == 3 && s.words[1] == "AS" {
				st.name = s.words[2]
			}
			all = append(all, st)
		case slices.Contains([]string{"COPY", "RUN", "WORKDIR", "CMD", "ENTRYPOINT"}, s.name):
			all[len(all)-1].steps = append(all[len(all)-1].steps, s)
		default:
			return nil, fmt.Errorf("%s: %s is not an instruction that this test knows", path, line)
		}
	}
	return all, err
}

// one is the only step of a stage by this name; another number of them is a
// Dockerfile that the tests have to be changed for.
func (st stage) one(name string) step {
	var all []step
	for _, s := range st.steps {
		if s.name == name {
			all = append(all, s)
		}
	}
	if len(all) != 1 {
		panic(fmt.Sprintf("%d instructions %s in %v", len(all), name, st))
	}
	return all[0]
}
