package patcher

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sgpatch/patcher/install"
	"sgpatch/patcher/patchset"
)

// TestTableOfSomebody: that a table lists a content proves where the hunks of our
// own sets have their places. Of another's set they are looked for, scopes and all.
func TestTableOfSomebody(t *testing.T) {
	const before, after = "def one():\n    x = 1\n    return x\n\n\ndef two():\n    y = 1\n    return y\n", "def one():\n    x = 1\n    return x\n\n\ndef two():\n    y = 2\n    return y\n"
	diff := "--- a/sglang/a.py\n+++ b/sglang/a.py\n@@ -6,3 +6,3 @@ one\n def two():\n-    y = 1\n+    y = 2\n     return y\n"
	files, err := patchset.Parse("a.diff", []byte(diff))
	if err != nil {
		t.Fatal(err)
	}
	set := patchset.Set{ID: "theirs", Version: "1", Variants: []patchset.Variant{{Name: "v", Files: files, Text: []byte(diff)}}}
	set.Rows = []patchset.Row{{Release: "0.5.9", Path: "sglang/a.py", Pristine: patchset.DigestOf([]byte(before)), Patched: patchset.DigestOf([]byte(after)), Variant: "v"}}
	root := folder(t)
	if err := os.Mkdir(filepath.Join(root, "sglang"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "sglang", "a.py"), []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tried := range []bool{false, true} {
		set.Tried = tried
		s, err := Open(install.Install{Root: root, Told: true}, []patchset.Set{set})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Plan(Goal{Command: "apply", Apply: []string{"theirs"}, Named: true})
		var refused *RefusedError
		if got := errors.As(err, &refused) && strings.Contains(refused.Message, "outside of that scope"); got == tried || (err == nil) != tried {
			t.Errorf("tried %v: %v", tried, err)
		}
	}
}
