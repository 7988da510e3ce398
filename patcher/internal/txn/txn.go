// Package txn changes many files as one step, and is the only package of the
// program that writes.
//
// A commit is: journal, save originals, stage beside each target, sync, rename,
// sync the directories, receipt, take the journal away. The rename of the
// receipt is the point of no return: a journal found later is rolled back if
// the receipt on disk is the old one and merely tidied up if it is the new one.
// Recovery touches a file only if its digest is the journal's old or new one.
//
// It does not know what a patch is. It will not follow a link at the end of a
// path, create a directory outside .sgpatch, or write through a hard link.
package txn

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Folder is the name of the records' directory in an install's root.
const Folder = ".sgpatch"

// Write is one file of a commit.
type Write struct {
	Rel   string      // path from the root, "" for the sitecustomize, which may lie anywhere
	Path  string      // the real file: absolute, no link in it
	Old   string      // digest that must be there before, "" for no file
	New   string      // digest after it, "" to remove the file; Old for only the bytecode to go
	Data  []byte      // the content of digest New
	Mtime time.Time   // zero: now, but never the whole second of the file it replaces
	Perm  fs.FileMode // of a file that is created
	Stale []string    // bytecode to remove with it
}

// BusyError says that somebody else holds the lock.
type BusyError struct {
	Path string
	Wait time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s is locked by another sgpatch; waited %s", e.Path, e.Wait)
}

// CommitError says how far a commit came.
type CommitError struct {
	Path    string   // the file at fault
	Step    string   // what failed: "stage", "rename", ...
	Touched bool     // some target had been replaced by then
	Undone  bool     // and every one has been put back
	Journal bool     // a journal is left: the next command has something to do
	Left    []string // files that somebody else replaced meanwhile
	Err     error
}

func (e *CommitError) Error() string {
	s := fmt.Sprintf("%s: %s: %v", e.Path, e.Step, e.Err)
	switch {
	case !e.Touched:
		s += "; nothing was changed"
	case e.Undone:
		s += "; everything was put back"
	case !e.Journal:
		return s + "; it could not be put back"
	case e.Journal:
		return s + "; it could not all be put back, the journal stays"
	default:
		return s + "; it could not be put back"
	}
	for _, p := range e.Left {
		s += "; " + p + " is neither the old nor the new content and stays as it is"
	}
	if e.Journal {
		s += "; the next command tidies up"
	}
	return s
}

func (e *CommitError) Unwrap() error { return e.Err }

// ChangedError says that a file is not what the plan was made from.
type ChangedError struct{ Path string }

func (e *ChangedError) Error() string {
	return e.Path + " changed while it was looked at"
}

// Digest is the SHA-256 of a content in hex.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// digestAt returns the digest of a file below a directory, "" if there is none.
func digestAt(dirfd int, name string) (string, error) {
	data, err := readAt(dirfd, name, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return Digest(data), nil
}

const (
	maxFile   = 32 << 20 // no Python source is larger; stops a device or a bomb
	maxRecord = 16 << 20 // journal and receipt
)

// readAt reads a regular file without following a link at its end. It speaks to
// the kernel directly: package os would first try every file with the poller.
func readAt(dirfd int, name string, limit int64) ([]byte, error) {
	data, _, err := read(dirfd, name, unix.O_NOFOLLOW, limit)
	return data, err
}

// ReadFile reads a regular file of at most limit bytes; links are followed. A
// pipe in its place is refused, not waited for.
func ReadFile(path string, limit int64) ([]byte, error) {
	data, _, err := ReadAged(path, limit)
	return data, err
}

// ReadAged also tells the modification time that goes with the content, in
// nanoseconds since 1970: a look by name could find that of another file.
func ReadAged(path string, limit int64) (data []byte, mtime int64, err error) {
	return read(unix.AT_FDCWD, path, 0, limit)
}

func read(dirfd int, name string, flag int, limit int64) ([]byte, int64, error) {
	fail := func(op string, err error) ([]byte, int64, error) {
		return nil, 0, &fs.PathError{Op: op, Path: name, Err: err}
	}
	fd, err := openat(dirfd, name, unix.O_RDONLY|unix.O_NONBLOCK|flag)
	if err != nil {
		return fail("open", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	switch err := unix.Fstat(fd, &st); {
	case err != nil:
		return fail("stat", err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fail("read", errors.New("not a regular file"))
	case st.Size > limit:
		return fail("read", fmt.Errorf("larger than %d bytes", limit))
	}
	buf := make([]byte, st.Size+512)
	for n := 0; ; {
		got, err := readfd(fd, buf[n:])
		if err != nil {
			return fail("read", err)
		}
		if n += got; got == 0 {
			return buf[:n], st.Mtim.Nano(), nil
		}
		if int64(n) > limit {
			return fail("read", errors.New("it grows while it is read"))
		}
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}

// openDir opens a directory by its real path; a link anywhere in it is refused,
// so that a component swapped since it was resolved cannot lead elsewhere.
func openDir(path string) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_DIRECTORY | unix.O_RDONLY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := openat2(path, how)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		// kernels before 5.6, and seccomp filters that do not know the call
		if real, rerr := filepath.EvalSymlinks(path); rerr != nil || real != path {
			return -1, &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
		}
		fd, err = openat(unix.AT_FDCWD, path, unix.O_DIRECTORY|nofollow)
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}
