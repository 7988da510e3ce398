package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	w, err := walk(path)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing && isLink(path):
		return "", &LinkError{path, "nothing", "the link dangles", "reinstall SGLang, or remove the link"}
	case missing && !w.last:
		return path, fs.ErrNotExist
	case err != nil && !missing:
		return "", err
	}
	if len(w.links) > 0 {
		if cache := cacheOf(w.real); cache != "" && !strings.HasPrefix(realOr(root)+"/", cache+"/") {
			return "", &LinkError{path, w.real, "that is the package cache " + cache + ", shared with other environments", "give this environment files of its own, as with: uv pip install --link-mode copy --force-reinstall --no-deps sglang==VERSION"}
		}
		if terr := w.trusted(); terr != nil {
			return "", terr
		}
	}
	if missing {
		err = fs.ErrNotExist
	}
	return w.real, err
}

// Trusted follows the links of a directory's path as Resolve does those of a file.
func Trusted(dir string) (string, error) {
	w, err := walk(dir)
	if err == nil {
		err = w.trusted()
	}
	return w.real, err
}

func isLink(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Mode()&fs.ModeSymlink != 0
}

// cacheOf returns the parent directory that carries a cache tag, as uv's does.
func cacheOf(path string) string {
	const signature = "Signature: 8a477f597d28d172789f06886806bc55"
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if text, err := readFile(filepath.Join(dir, "CACHEDIR.TAG"), 1<<16); err == nil && bytes.HasPrefix(text, []byte(signature)) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// trusted demands of each link that it belongs to root, to us, or to the owner
// of what it leads to, which is the directory if the file is yet to be made.
func (w way) trusted() error {
	for _, l := range w.links {
		if l.uid != 0 && l.uid != uint32(os.Geteuid()) && l.uid != w.owner {
			return &LinkError{l.path, w.real, fmt.Sprintf("the link belongs to user %d, what it leads to belongs to user %d", l.uid, w.owner), "name the real directory (--root), or give the link to the owner of the file (chown -h)"}
		}
	}
	return nil
}

// named says whether a file, and what its links lead to, could be a
// sitecustomize by its name.
func named(site string) bool {
	base, dir := filepath.Base(site), filepath.Base(filepath.Dir(site))
	return (base == "sitecustomize.py" || (base == "__init__.py" && dir == "sitecustomize")) && strings.HasSuffix(realOr(site), ".py")
}
