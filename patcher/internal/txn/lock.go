package txn

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is the locked records of one root.
type Dir struct {
	root string
	top  int // the root, opened once: what its name leads to may change
	fd   int // .sgpatch in it
	lock int
}

// Lock creates <root>/.sgpatch if need be and takes its lock, waiting at most
// wait. The lock goes with the process, whatever ends it.
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
func lockOnce(ctx context.Context, root string, deadline time.Time, wait time.Duration) (*Dir, error) {
	d := &Dir{root: root, top: -1, fd: -1, lock: -1}
	purged, err := d.open()
	if err == nil && !purged {
		err = flock(ctx, d.lock, deadline)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			err = &BusyError{Path: root, Wait: wait}
		case err != nil:
			err = &fs.PathError{Op: "lock", Path: filepath.Join(root, Folder, lockName), Err: err}
		case !d.current():
			purged = true
		default:
			err = d.settle()
		}
	}
	if err != nil || purged {
		d.Close()
		return nil, err
	}
	return d, nil
}

// open opens the folder and the lock in it, and makes them if need be. It says
// so if somebody took the folder away at that moment.
func (d *Dir) open() (purged bool, err error) {
	if d.top, err = openat(unix.AT_FDCWD, d.root, unix.O_DIRECTORY); err != nil {
		return false, &fs.PathError{Op: "open", Path: d.root, Err: err}
	}
	if d.fd, err = openOrMake(d.top, d.root); err == nil {
		d.lock, err = openLock(d.fd)
		if err != nil {
			err = &fs.PathError{Op: "open", Path: filepath.Join(d.root, Folder, lockName), Err: err}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err == nil {
		owner(d.fd).adopt(d.lock)
	}
	return false, err
}

// current says whether the lock that is held is the one that others find.
func (d *Dir) current() bool {
	var held, now unix.Stat_t
	return unix.Fstat(d.lock, &held) == nil && unix.Fstatat(unix.AT_FDCWD, filepath.Join(d.root, Folder, lockName), &now, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		held.Ino == now.Ino && held.Dev == now.Dev
}

// openOrMake opens .sgpatch in a root, with the owner of the root and, whatever
// the umask, a mode that lets everybody look.
func openOrMake(top int, root string) (int, error) {
	fd, err := recordsAt(top, Folder, root)
	if err == nil && settled(fd) {
		return fd, nil
	}
	path := filepath.Join(root, Folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := mkdirat(top, Folder); err != nil && !errors.Is(err, fs.ErrExist) {
			return -1, &fs.PathError{Op: "mkdir", Path: path, Err: err}
		}
		if fd, err = recordsAt(top, Folder, root); err != nil {
			return -1, err
		}
	case err != nil:
		return -1, err
	}
	owner(top).give(fd)
	if err := chmodfd(fd, 0o755); err != nil {
		unix.Close(fd)
		return -1, &fs.PathError{Op: "chmod", Path: path, Err: err}
	}
	return fd, nil
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
	if err := fsync(d.top, d.root); err != nil {
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
	var err error
	for _, fd := range []int{d.top, d.fd, d.lock} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

// openLock opens the lock file, or makes it.
func openLock(dir int) (fd int, err error) {
	err = act(call{op: "create", dir: dir, name: lockName}, func() (err error) {
		fd, err = unix.Openat(dir, lockName, unix.O_RDWR|unix.O_CREAT|nofollow, 0o644)
		return err
	})
	return fd, err
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
