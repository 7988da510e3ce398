package patches_test

import (
	"io/fs"
	"path"
	"reflect"
	"slices"
	"testing"

	"sgpatch/patcher/patchset"
	"sgpatch/patches"
)

// Data is checked completely when it is loaded, so a set that loads is sound.
func TestEverySetLoads(t *testing.T) {
	entries, err := patches.FS.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		sub, err := fs.Sub(patches.FS, e.Name())
		if err != nil {
			t.Fatal(err)
		}
		set, err := patchset.Load(sub)
		if err != nil {
			t.Errorf("%s: %v", e.Name(), err)
			continue
		}
		if set.ID != e.Name() {
			t.Errorf("the folder %s has the set %s", e.Name(), set.ID)
		}
		set.Tried = true
		if again, err := patchset.Reload(sub, e.Name()); err != nil || !reflect.DeepEqual(set, again) {
			t.Errorf("%s: without the checks it is %v, %v", e.Name(), again, err)
		}
		ids = append(ids, set.ID)
	}
	if want := []string{"force-custom-ar-pcie", "nccl-pcie"}; !slices.Equal(ids, want) {
		t.Errorf("sets %q, want %q", ids, want)
	}
}

func TestOnlyDataIsEmbedded(t *testing.T) {
	err := fs.WalkDir(patches.FS, ".", func(name string, d fs.DirEntry, err error) error {
		known := slices.Contains([]string{"manifest.toml", "releases.tsv", "check.py"}, path.Base(name))
		if err == nil && !d.IsDir() && !known && path.Ext(name) != ".diff" {
			t.Errorf("%s is embedded", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
