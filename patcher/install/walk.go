package install

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// way is how a path was followed to its end.
type way struct {
	real  string // the end's name without a link in it
	links []link
	owner uint32 // of what is at the end; of its directory if it is missing
	last  bool   // the last component is missing, and nothing else
}

// link is a symbolic link that was followed.
type link struct {
	path string
	uid  uint32
}

// mostLinks is the kernel's own limit.
const mostLinks = 40

// walk follows an absolute path, each component by its descriptor: whoever owns
// a directory on the way could swap one between a look and a step by name, and
// have a link of theirs taken for none. At the end the name must still lead to
// what was found.
func walk(path string) (way, error) {
	var w way
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return w, err
	}
	defer func() { unix.Close(fd) }()
	w.real = "/"
	var st unix.Stat_t
	for left := components(path); len(left) > 0; {
		name := left[0]
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) && len(left) == 1 {
			return w.missing(fd, name)
		}
		if err != nil {
			return w, &fs.PathError{Op: "open", Path: filepath.Join(w.real, name), Err: err}
		}
		left = left[1:]
		if err := unix.Fstat(next, &st); err != nil {
			unix.Close(next)
			return w, &fs.PathError{Op: "stat", Path: filepath.Join(w.real, name), Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			unix.Close(fd)
			fd, w.real = next, filepath.Join(w.real, name)
			continue
		}
		to, err := readlink(next)
		unix.Close(next)
		if w.links = append(w.links, link{filepath.Join(w.real, name), st.Uid}); len(w.links) > mostLinks {
			err = unix.ELOOP
		}
		if err != nil {
			return w, &fs.PathError{Op: "readlink", Path: filepath.Join(w.real, name), Err: err}
		}
		if filepath.IsAbs(to) {
			if err := reopen(&fd, "/"); err != nil {
				return w, err
			}
			w.real = "/"
		}
		left = append(components(to), left...)
	}
	return w.arrived(fd, w.real)
}

// components keeps "..": what it leads to is seen when it is opened.
func components(path string) []string {
	var all []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			all = append(all, name)
		}
	}
	return all
}

func reopen(fd *int, path string) error {
	next, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(*fd)
		*fd = next
	}
	return err
}

func readlink(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	return string(buf[:max(n, 0)]), err
}

// missing ends a walk in the directory where its last component would be.
func (w way) missing(fd int, name string) (way, error) {
	w, err := w.arrived(fd, w.real)
	w.real, w.last = filepath.Join(w.real, name), true
	if err == nil {
		err = &fs.PathError{Op: "open", Path: w.real, Err: fs.ErrNotExist}
	}
	return w, err
}

// arrived compares what the walk found with what has its name.
func (w way) arrived(fd int, name string) (way, error) {
	var end, named unix.Stat_t
	if err := unix.Fstat(fd, &end); err != nil {
		return w, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if len(w.links) > 0 {
		again, err := openExactly(name)
		if err != nil {
			return w, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		err = unix.Fstat(again, &named)
		unix.Close(again)
		if err != nil || end.Dev != named.Dev || end.Ino != named.Ino {
			return w, &fs.PathError{Op: "open", Path: name, Err: errors.New("it changed while its links were followed")}
		}
	}
	w.owner = end.Uid
	return w, nil
}

// openExactly opens a name that must have no link in it.
func openExactly(name string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // kernels before 5.6, and filters that do not know the call
		if real, rerr := filepath.EvalSymlinks(name); rerr != nil || real != name {
			return -1, unix.ELOOP
		}
		fd, err = unix.Open(name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	return fd, err
}

// readFile reads a regular file of at most limit bytes. A pipe or a device in
// its place is not waited for: it may lie in somebody else's install.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() > limit {
		return nil, errors.Join(err, &fs.PathError{Op: "read", Path: path, Err: errors.New("too large")})
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// openFile opens a regular file, and nothing else.
func openFile(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")})
	}
	return f, nil
}
