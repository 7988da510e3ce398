package txn

import (
	"errors"

	"golang.org/x/sys/unix"
)

// The calls to the kernel that this package is made of. Each goes through act,
// where a build with the tag faults can note it, make it fail, or end the
// process before or after it: see faults.go. Without the tag act is the call.

// call says what a call is about.
type call struct {
	op   string
	dir  int    // the directory that name stands in
	name string // "" if the call is about fd
	to   string // rename: the new name, in the same directory; setxattr: the attribute
	fd   int
	data []byte // write, setxattr: what is written
}

// act makes a call; being interrupted by a signal is no failure.
func act(c call, do func() error) error {
	for {
		if err := inject(c, do); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

const nofollow = unix.O_NOFOLLOW | unix.O_CLOEXEC

func openat(dir int, name string, flags int) (fd int, err error) {
	err = act(call{op: "open", dir: dir, name: name}, func() (err error) {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

func openat2(path string, how *unix.OpenHow) (fd int, err error) {
	err = act(call{op: "open", dir: unix.AT_FDCWD, name: path}, func() (err error) {
		fd, err = unix.Openat2(unix.AT_FDCWD, path, how)
		return err
	})
	return fd, err
}

// createat makes a new file that only its owner can read.
func createat(dir int, name string) (fd int, err error) {
	err = act(call{op: "create", dir: dir, name: name}, func() (err error) {
		fd, err = unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|nofollow, 0o600)
		return err
	})
	return fd, err
}

func mkdirat(dir int, name string) error {
	return act(call{op: "mkdir", dir: dir, name: name}, func() error { return unix.Mkdirat(dir, name, 0o755) })
}

func readfd(fd int, buf []byte) (n int, err error) {
	err = act(call{op: "read", fd: fd}, func() (err error) {
		n, err = unix.Read(fd, buf)
		return err
	})
	return n, err
}

// writeAll writes all of data, in as many calls as that takes.
func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n := 0
		err := act(call{op: "write", fd: fd, data: data}, func() (err error) {
			n, err = unix.Write(fd, data)
			return err
		})
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func fsyncfd(fd int) error {
	return act(call{op: "fsync", fd: fd}, func() error { return unix.Fsync(fd) })
}

// writeback begins to bring a file's data to the disk; fsync waits for it. What
// fails already at the beginning, as without room for it, no later call may tell.
func writeback(fd int) error {
	err := act(call{op: "writeback", fd: fd}, func() error { return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) })
	for _, unable := range []error{unix.ENOSYS, unix.ENOTSUP, unix.EINVAL, unix.ESPIPE} {
		if errors.Is(err, unable) {
			return nil
		}
	}
	return err
}

func renameat(dir int, from, to string) error {
	return act(call{op: "rename", dir: dir, name: from, to: to}, func() error { return unix.Renameat(dir, from, dir, to) })
}

// unlinkat removes a file; one that is not there is no failure, and neither is
// an error after which it is gone all the same, as network file systems have it.
func unlinkat(dir int, name string) error {
	err := act(call{op: "unlink", dir: dir, name: name}, func() error { return unix.Unlinkat(dir, name, 0) })
	var st unix.Stat_t
	if err != nil && errors.Is(unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW), unix.ENOENT) {
		return nil
	}
	return err
}

func chmodfd(fd int, mode uint32) error {
	return act(call{op: "chmod", fd: fd}, func() error { return unix.Fchmod(fd, mode) })
}

func chownfd(fd, uid, gid int) error {
	return act(call{op: "chown", fd: fd}, func() error { return unix.Fchown(fd, uid, gid) })
}

func setxattr(fd int, name string, value []byte) error {
	return act(call{op: "setxattr", fd: fd, to: name, data: value}, func() error { return unix.Fsetxattr(fd, name, value, 0) })
}

func removexattr(fd int, name string) error {
	return act(call{op: "removexattr", fd: fd}, func() error { return unix.Fremovexattr(fd, name) })
}

func utimes(fd int, ts []unix.Timespec) error {
	return act(call{op: "utimes", fd: fd}, func() error { return unix.UtimesNanoAt(fd, "", ts, unix.AT_EMPTY_PATH) })
}

func flockfd(fd, how int) error {
	return act(call{op: "lock", fd: fd}, func() error { return unix.Flock(fd, how) })
}
