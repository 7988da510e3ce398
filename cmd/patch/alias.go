package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"sgpatch/patcher"
)

// makeAlias gives this program the name patch. Anything else that has the name
// stays: it would be GNU patch.
func makeAlias(self, path string) (bool, error) {
	if _, err := os.Lstat(path); err == nil {
		if isUs(path) {
			return false, nil
		}
		return false, &patcher.RefusedError{Code: "in-the-way", Path: path, Message: fmt.Sprintf("%s exists and is not sgpatch; it stays", path), Hint: "choose a directory that stands earlier on PATH"}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, patcher.Link(self, path)
}
