package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// carriedSets are the patch sets of one --patches folder, on their way to
// another host. There they are read from memory.
type carriedSets struct {
	Dir   string `json:"dir"` // where it was, for messages
	Files memory `json:"files"`
}

const maxCarried = 64 << 20 // bytes of one folder

// carry reads the folders with a manifest, and nothing else that lies there.
func carry(dir string) (carriedSets, error) {
	c := carriedSets{Dir: dir, Files: memory{}}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return c, err
	}
	defer root.Close()
	fsys := root.FS()
	folders, err := setFolders(fsys, dir)
	if err != nil {
		return c, err
	}
	left := int64(maxCarried)
	for _, folder := range folders {
		err := fs.WalkDir(fsys, folder, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			st, err := fs.Stat(fsys, name)
			if err != nil || !st.Mode().IsRegular() {
				return err
			}
			if left -= st.Size(); left < 0 {
				return fmt.Errorf("%s: more than %d MiB; leave out what belongs to no set", dir, maxCarried>>20)
			}
			c.Files[path.Clean(name)], err = fs.ReadFile(fsys, name)
			return err
		})
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// memory is a file system of contents by their paths; folders are where files are.
type memory map[string][]byte

func (m memory) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if text, ok := m[name]; ok {
		return &memoryFile{Reader: bytes.NewReader(text), memoryInfo: memoryInfo{path.Base(name), int64(len(text)), 0o444}}, nil
	}
	list := m.list(name)
	if len(list) == 0 && name != "." {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memoryFile{Reader: bytes.NewReader(nil), memoryInfo: memoryInfo{path.Base(name), 0, fs.ModeDir | 0o555}, list: list}, nil
}

// list is what lies in a folder, in order.
func (m memory) list(folder string) (all []fs.DirEntry) {
	prefix := folder + "/"
	if folder == "." {
		prefix = ""
	}
	seen := map[string]bool{}
	for name, text := range m {
		rest, ok := strings.CutPrefix(name, prefix)
		first, _, deeper := strings.Cut(rest, "/")
		if !ok || seen[first] {
			continue
		}
		seen[first] = true
		info := memoryInfo{first, int64(len(text)), 0o444}
		if deeper {
			info = memoryInfo{first, 0, fs.ModeDir | 0o555}
		}
		all = append(all, fs.FileInfoToDirEntry(info))
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all
}

type memoryInfo struct {
	name string
	size int64
	mode fs.FileMode
}

func (i memoryInfo) Name() string       { return i.name }
func (i memoryInfo) Size() int64        { return i.size }
func (i memoryInfo) Mode() fs.FileMode  { return i.mode }
func (i memoryInfo) ModTime() time.Time { return time.Time{} }
func (i memoryInfo) IsDir() bool        { return i.mode.IsDir() }
func (i memoryInfo) Sys() any           { return nil }

type memoryFile struct {
	*bytes.Reader
	memoryInfo
	list []fs.DirEntry
}

func (f *memoryFile) Stat() (fs.FileInfo, error) { return f.memoryInfo, nil }
func (f *memoryFile) Close() error               { return nil }
func (f *memoryFile) Size() int64                { return f.memoryInfo.size }

func (f *memoryFile) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		all := f.list
		f.list = nil
		return all, nil
	}
	if len(f.list) == 0 {
		return nil, io.EOF
	}
	some := f.list[:min(n, len(f.list))]
	f.list = f.list[len(some):]
	return some, nil
}
