package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// LinkError says why a link is not followed.
type LinkError struct{ Path, Target, Reason, Hint string }

func (e *LinkError) Error() string {
	return fmt.Sprintf("%s leads to %s: %s", e.Path, e.Target, e.Reason)
}

// Resolve follows the links of a path to the real file. A link into a package
// cache is refused: writing there would change every environment; a tag that
// covers the install's own root as well (uv puts one into a venv) is none. So is a link
// made by a user who does not own what it leads to: as root we would write
// where that user cannot. A path that does not exist resolves as far as its
// directory; the error then is fs.ErrNotExist and the path is good.
func Resolve(path, root string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if dir, derr := filepath.EvalSymlinks(filepath.Dir(path)); derr == nil {
			if _, lerr := os.Lstat(path); lerr != nil {
				return filepath.Join(dir, filepath.Base(path)), fs.ErrNotExist
			}
			return "", &LinkError{path, "nothing", "the link dangles", "reinstall SGLang, or remove the link"}
		}
		return path, fs.ErrNotExist
	}
	if err != nil || real == path {
		return real, err
	}
	if cache := cacheOf(real); cache != "" && !strings.HasPrefix(realOr(root)+"/", cache+"/") {
		return "", &LinkError{path, real, "that is the package cache " + cache + ", shared with other environments", "give this environment files of its own, as with: uv pip install --link-mode copy --force-reinstall --no-deps sglang==VERSION"}
	}
	return real, trusted(path, real)
}

// cacheOf returns the parent directory that carries a cache tag, as uv's does.
func cacheOf(path string) string {
	const signature = "Signature: 8a477f597d28d172789f06886806bc55"
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if text, err := read(filepath.Join(dir, "CACHEDIR.TAG")); err == nil && bytes.HasPrefix(text, []byte(signature)) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// trusted walks the links of path: each must belong to root, to us, or to the
// owner of the file at its end.
func trusted(path, real string) error {
	target, err := os.Stat(real)
	if err != nil {
		return err
	}
	owner := target.Sys().(*syscall.Stat_t).Uid
	at, left := "/", strings.Split(strings.Trim(path, "/"), "/")
	for hops := 0; len(left) > 0; {
		next := filepath.Join(at, left[0])
		left = left[1:]
		st, err := os.Lstat(next)
		if err != nil {
			return err
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		uid := st.Sys().(*syscall.Stat_t).Uid
		if uid != 0 && uid != uint32(os.Geteuid()) && uid != owner {
			return &LinkError{next, real, fmt.Sprintf("the link belongs to user %d, the file to user %d", uid, owner), "name the real directory (--root), or give the link to the owner of the file (chown -h)"}
		}
		to, err := os.Readlink(next)
		if err != nil {
			return err
		}
		if hops++; hops > 40 {
			return &LinkError{path, real, "too many links", "name the real directory: --root"}
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		// ".." is resolved here because at holds no link
		left = append(strings.Split(strings.Trim(filepath.Clean(to), "/"), "/"), left...)
	}
	return nil
}
