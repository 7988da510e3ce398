package install

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// open opens a regular file. Whoever owns an install could put a pipe in the
// place of one, and root would wait for it.
func open(path string) (*os.File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	return os.Open(path)
}

// maxText bounds what is read of a text that is no source.
const maxText = 1 << 20

// read returns at most maxText bytes of a regular file.
func read(path string) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxText))
}
