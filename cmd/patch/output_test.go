package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/pflag"

	"sgpatch/fixtures/tree"
)

func reportSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("../../docs/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("report.json", doc); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile("report.json")
}

// TestEveryOutputIsAReport runs every command, also where it fails, and holds
// what it prints against the schema and its own exit code.
func TestEveryOutputIsAReport(t *testing.T) {
	schema := reportSchema(t)
	dir := t.TempDir()
	t.Setenv("SGPATCH_STATE_DIR", filepath.Join(dir, "state"))
	root := filepath.Join(dir, "site")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := tree.Write(root); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range []struct {
		exit int
		line string
	}{
		{0, "version"}, {0, "help"}, {0, "help apply"}, {2, "help nothing"}, {0, "completion bash"}, {2, "completion"},
		{0, "status --root " + root}, {3, "status --root " + dir + "/none"}, {1, "verify --root " + root}, {0, "list --root " + root},
		{3, "apply --listed-only --root " + root}, {2, "apply nothing --root " + root}, {2, "apply --env X --root " + root}, {2, "apply --env PATH=1 --root " + root},
		{0, "apply -n --diff --root " + root}, {0, "apply --diff --reason why --root " + root}, {0, "apply nccl-pcie --root " + root}, {0, "status --root " + root},
		{0, "show force-custom-ar-pcie --root " + root}, {0, "show nccl-pcie --root " + root}, {0, "show force-custom-ar-pcie --release 0.5.23"}, {3, "show force-custom-ar-pcie --release 0.4.0"}, {2, "show"},
		{0, "verify --root " + root}, {0, "verify --fast --root " + root}, {3, "verify --fast --root " + dir},
		{0, "revert --all --diff --result worse --root " + root}, {0, "revert --root " + root}, {0, "history"}, {0, "history --limit 1"}, {0, "history --limit 1 --verbose"}, {3, "preflight --root " + root}, {2, "preflight x"}, {0, "doctor --root " + root}, {1, "doctor --root " + dir + "/none"}, {2, "doctor x"}, {2, "trial --root " + root}, {2, "trial --runs 0 --root " + root}, {0, "revert --purge --root " + root},
		{2, "apply --nonsense"}, {2, "verify --"}, {2, "alias"}, {0, "alias " + dir}, {0, "alias " + dir},
	} {
		var stdout, stderr bytes.Buffer
		args := strings.Fields(c.line)
		if args[len(args)-1] == "--" {
			args = append([]string{args[0], "--json"}, args[1:]...)
		} else {
			args = append(args, "--json")
		}
		code := run(append([]string{"sgpatch"}, args...), &stdout, &stderr)
		if code != c.exit {
			t.Errorf("%s: exit %d, want %d: %s", c.line, code, c.exit, stdout.String())
		}
		doc, err := jsonschema.UnmarshalJSON(&stdout)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%s: %v", c.line, err)
		}
		if got, _ := doc.(map[string]any)["exit"].(json.Number); got.String() != string(rune('0'+c.exit)) {
			t.Errorf("%s: exit %v in the report, %d outside", c.line, got, c.exit)
		}
		seen[args[0]] = true
	}
	for _, c := range commands() {
		if !seen[c.name] {
			t.Errorf("%s: nobody looked at its output", c.name)
		}
	}
}

// TestEveryFlagIsDocumented holds docs/commands.md against the flags there are.
func TestEveryFlagIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands() {
		if !strings.Contains(string(text), "`"+c.name) {
			t.Errorf("docs/commands.md does not have %s", c.name)
		}
		flagSet(c, &options{}).VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(string(text), "`--"+f.Name) {
				t.Errorf("docs/commands.md does not have --%s of %s", f.Name, c.name)
			}
		})
	}
}
