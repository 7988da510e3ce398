package ansible

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sgpatch/fixtures/tools"
)

// TestSound: Ansible's own tools find nothing to say about what is here.
func TestSound(t *testing.T) {
	c := newControl(t)
	here := c.dir + "/ansible" // the linter leaves a folder where it looks
	if err := os.CopyFS(here, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := c.command(name, args...)
		cmd.Dir = here
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	if out := run("ansible-lint", "--offline", "--nocolor", "--profile", "production"); !strings.Contains(out, "Passed: 0 failure(s), 0 warning(s)") {
		t.Error(out)
	}
	run("ansible-playbook", "-i", "localhost,", "--syntax-check", "rolling.yml", "revert.yml", "testdata/site.yml", "testdata/plain.yml")
	if out := run("ansible-doc", "--type", "module", "sgpatch"); !strings.Contains(out, "Take out all that is in place, and the records") || !strings.Contains(out, "RETURN VALUES") {
		t.Error(out)
	}
	c.documented(run("ansible-doc", "--type", "module", "--json", "sgpatch"))
}

// documented: the options that the documentation has are those that the module
// takes, with the same types and defaults.
func (c *control) documented(text string) {
	c.t.Helper()
	var doc struct {
		Sgpatch struct {
			Doc struct {
				Options map[string]struct {
					Type, Elements string
					Choices        []string
					Default        any
					Description    []string
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		c.t.Fatalf("%v: %s", err, text)
	}
	for name, o := range doc.Sgpatch.Doc.Options {
		o.Description = nil
		doc.Sgpatch.Doc.Options[name] = o
	}
	ansible := tools.Path(c.t, "ansible-playbook")
	if real, err := filepath.EvalSymlinks(ansible); err == nil {
		ansible = real
	}
	cmd := exec.Command(filepath.Join(filepath.Dir(ansible), "python3"), "-c", "import json, sgpatch; print(json.dumps(sgpatch.spec()))")
	cmd.Env = append(os.Environ(), "PYTHONPATH=roles/sgpatch/library", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatal(err)
	}
	spec := doc
	spec.Sgpatch.Doc.Options = nil
	if err := json.Unmarshal([]byte(`{"sgpatch":{"doc":{"options":`+string(out)+`}}}`), &spec); err != nil {
		c.t.Fatal(err)
	}
	said, _ := json.Marshal(doc.Sgpatch.Doc.Options)
	taken, _ := json.Marshal(spec.Sgpatch.Doc.Options)
	if string(said) != string(taken) || len(spec.Sgpatch.Doc.Options) == 0 {
		c.t.Errorf("documented: %s\ntaken: %s", said, taken)
	}
}
