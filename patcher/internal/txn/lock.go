package txn

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is the locked records of one root.
type Dir struct {
	root   string
	rootfd int // the root, opened once: what its name leads to may change
	fd     int // .sgpatch in it
	lock   int
}

// Lock creates <root>/.sgpatch if need be and takes its lock, waiting at most
// wait. The lock goes with the process, whatever ends it. No link may be in
// root: its owner could have it lead to the records of another install.
func Lock(ctx context.Context, root string, wait time.Duration) (*Dir, error) {
	deadline := time.Now().Add(wait)
	for {
		d, err := lockOnce(ctx, root, deadline, wait)
		if err != nil || d != nil {
			return d, err
		}
		if time.Now().After(deadline) {
			return nil, &BusyError{Path: root, Wait: wait}
		}
	}
}

// lockOnce returns nil, nil if the folder was purged while it waited.
func lockOnce(ctx context.Context, root string, deadline time.Time, wait time.Duration) (_ *Dir, err error) {
	d := &Dir{root: root, rootfd: -1, fd: -1, lock: -1}
	good := false
	defer func() {
		if !good {
			d.Close()
		}
	}()
	if d.rootfd, err = openDir(root); err != nil {
		return nil, err
	}
	if d.fd, err = openOrMake(d.rootfd, root); err != nil {
		return nil, err
	}
	path := filepath.Join(root, Folder, lockName)
	switch d.lock, err = openLock(d.fd); {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENXIO):
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNoFile}
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	switch err := flock(ctx, d.lock, deadline); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, &BusyError{Path: root, Wait: wait}
	case err != nil:
		return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	if !d.current() {
		return nil, nil
	}
	if err := d.settle(); err != nil {
		return nil, err
	}
	good = true
	return d, nil
}

// current says whether the lock that is held is the one that others would find.
func (d *Dir) current() bool {
	var held, now unix.Stat_t
	return unix.Fstat(d.lock, &held) == nil && unix.Fstatat(d.rootfd, Folder+"/"+lockName, &now, unix.AT_SYMLINK_NOFOLLOW) == nil && held.Ino == now.Ino && held.Dev == now.Dev
}

// openOrMake opens the folder in the root, or makes it: with the root's owner
// and, whatever the umask, a mode that lets everybody look.
func openOrMake(rfd int, root string) (int, error) {
	fd, err := recordsAt(rfd, Folder, root)
	if errors.Is(err, fs.ErrNotExist) {
		if err := mkdirat(rfd, Folder); err != nil && !errors.Is(err, fs.ErrExist) {
			return -1, &fs.PathError{Op: "mkdir", Path: filepath.Join(root, Folder), Err: err}
		}
		fd, err = recordsAt(rfd, Folder, root)
	}
	if err != nil {
		return -1, err
	}
	if settled(fd) || !fresh(fd) {
		return fd, nil
	}
	owner(rfd).give(fd)
	if err := chmodfd(fd, 0o755); err != nil {
		unix.Close(fd)
		return -1, &fs.PathError{Op: "chmod", Path: filepath.Join(root, Folder), Err: err}
	}
	return fd, nil
}

// fresh says that nothing but a lock is in the folder: it is one that a command
// of ours made. Another, put in its place, is not given away with all that is in it.
func fresh(fd int) bool {
	again, err := openat(fd, ".", unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	dir := os.NewFile(uintptr(again), Folder)
	defer dir.Close()
	names, err := dir.Readdirnames(3)
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	return !slices.ContainsFunc(names, func(n string) bool { return n != lockName && n != ignoreName+suffix })
}

const ignoreName = ".gitignore"

// settled says whether the folder is on the disk. Its .gitignore is the last
// thing that is made: where it is missing, the command that made the folder did
// not come far.
func settled(fd int) bool {
	var st unix.Stat_t
	return unix.Fstatat(fd, ignoreName, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// settle brings a new folder to the disk: without its directory there, no
// journal in it is. The lock is held.
func (d *Dir) settle() error {
	if settled(d.fd) {
		return nil
	}
	if err := fsync(d.rootfd, d.root); err != nil {
		return err
	}
	var s syncs
	defer s.close()
	if err := putAt(d.fd, ignoreName, []byte("*\n"), &s); err != nil {
		return inFolder(d.root, err)
	}
	return s.wait()
}

// flock polls, because a blocking flock knows no deadline.
func flock(ctx context.Context, fd int, deadline time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := flockfd(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return ctx.Err()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

// LockBeside locks the directory of a file that several roots share, so that no
// lock file is left beside it. The function it returns unlocks.
func LockBeside(ctx context.Context, path string, wait time.Duration) (func(), error) {
	dir := filepath.Dir(path)
	fd, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	err = flock(ctx, fd, time.Now().Add(wait))
	switch {
	case err == nil, errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOLCK):
		// network file systems may not lock directories; the commit compares digests besides
		return func() { unix.Close(fd) }, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		unix.Close(fd)
		return nil, &BusyError{Path: path, Wait: wait}
	}
	unix.Close(fd)
	return nil, &fs.PathError{Op: "lock", Path: dir, Err: err}
}

// Close releases the lock.
func (d *Dir) Close() error {
	for _, fd := range []int{d.rootfd, d.fd, d.lock} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	return nil
}

// Busy says whether a command is at work in a root at this moment.
func Busy(root string) bool {
	fd, err := unix.Open(filepath.Join(root, Folder, lockName), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return errors.Is(unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
