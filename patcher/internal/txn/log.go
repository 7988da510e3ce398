package txn

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Append adds one line to a log that only its owner may read, creating it and
// its directory; a torn last line of an earlier crash is closed first.
func Append(path string, line []byte) error {
	dir := filepath.Dir(path)
	if err := act(call{op: "mkdir", dir: unix.AT_FDCWD, name: dir}, func() error { return os.MkdirAll(dir, 0o700) }); err != nil {
		return err
	}
	var f *os.File
	err := act(call{op: "create", dir: unix.AT_FDCWD, name: path}, func() (err error) {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	if err := flockfd(fd, unix.LOCK_EX); err != nil {
		return &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	if st, err := f.Stat(); err == nil && st.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, st.Size()-1); err == nil && last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	return writeAll(fd, append(line, '\n')) // not synced: the receipt beside the install is what counts
}

// Scratch makes an empty directory that only uid may enter.
func Scratch(uid, gid int) (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", "sgpatch-"); err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	if uid != os.Geteuid() {
		if err := os.Chown(dir, uid, gid); err != nil {
			remove()
			return "", nil, err
		}
	}
	return dir, remove, nil
}

// Link makes a symbolic link; an existing file is an error.
func Link(target, path string) error { return os.Symlink(target, path) }
