package txn

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFixed: a file or a directory that chattr has made immutable is known before
// anything is begun. It says nothing where the file system, or the user, has no
// such attribute to give.
func TestFixed(t *testing.T) {
	for _, name := range []string{"dir", "dir/file"} {
		root := t.TempDir()
		file := filepath.Join(root, "dir", "file")
		if err := errors.Join(os.Mkdir(filepath.Join(root, "dir"), 0o755), os.WriteFile(file, []byte("x"), 0o644)); err != nil {
			t.Fatal(err)
		}
		if err := Replaceable(file); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, unix.STATX_ATTR_IMMUTABLE); err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		defer unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0)
		if err := Replaceable(file); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "immutable") || !strings.Contains(err.Error(), filepath.Join(root, name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
