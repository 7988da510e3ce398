// Package patcher knows what is in place in one install and how to get from
// there to another set of enabled patch sets. Reverting is converging on a
// smaller set: there is no separate code for undoing.
//
// For every file it holds three contents: pristine (what was there before us),
// want (pristine with the hunks of every enabled set) and have (what is on
// disk). Plan only reads; Converge is the one way to change a host, and leaves
// the writing to txn.
package patcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"sgpatch/patcher/block"
	"sgpatch/patcher/internal/txn"
	"sgpatch/patcher/patchset"
)

// Receipt is what stands in <root>/.sgpatch about what is in place. It may come
// with somebody's image, so it is checked when it is read and never trusted to
// name anything that the contract does not allow.
type Receipt struct {
	Schema int        `json:"schema"`
	Root   string     `json:"root"`
	Python Python     `json:"python"`
	Entry  EntryPlace `json:"entry"`
	Sets   []Enabled  `json:"sets"`
	Files  []Tracked  `json:"files"`
	Last   Last       `json:"last"`
	Trial  string     `json:"trial,omitempty"` // of an experiment that has not ended: which, since when
}

// Python is the interpreter that apply asked.
type Python struct {
	Path          string   `json:"path,omitempty"`
	Executable    string   `json:"executable,omitempty"`
	Prefix        string   `json:"prefix,omitempty"`
	Version       string   `json:"version,omitempty"`
	Tag           string   `json:"tag,omitempty"`
	Magic         string   `json:"magic,omitempty"`
	PycachePrefix string   `json:"pycache_prefix,omitempty"`
	Extensions    []string `json:"extensions,omitempty"`
	SysPath       []string `json:"sys_path,omitempty"`
	Size          int64    `json:"size,omitempty"`
	Mtime         int64    `json:"mtime,omitempty"` // nanoseconds since 1970
}

// EntryPlace is the sitecustomize that carries this install's entries.
type EntryPlace struct {
	Path   string          `json:"path,omitempty"` // as Python imports it
	Real   string          `json:"real,omitempty"` // behind links
	Digest patchset.Digest `json:"digest,omitempty"`

	// The file before there was a block in it, so that it gets its time back.
	Before patchset.Digest `json:"before,omitempty"`
	Mtime  int64           `json:"mtime,omitempty"` // nanoseconds since 1970
}

// Enabled is one set in place.
type Enabled struct {
	ID      string          `json:"id"`
	Version string          `json:"version"`
	Variant string          `json:"variant,omitempty"`
	Listed  bool            `json:"listed"`
	Diff    patchset.Digest `json:"diff,omitempty"` // of the variant's text, kept beside the replaced contents
	Env     []EnvValue      `json:"env,omitempty"`
	NoEnv   bool            `json:"no_env,omitempty"`
	Applied time.Time       `json:"applied"`
	Reason  string          `json:"reason,omitempty"`

	Void    patchset.Void        `json:"void,omitzero"` // as the manifest had it, for verify --fast
	Shadows []patchset.EnvShadow `json:"shadows,omitempty"`
}

// EnvValue is one variable a set wants.
type EnvValue struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Switch bool   `json:"switch,omitempty"`
}

// Tracked is one file that enabled sets changed.
type Tracked struct {
	Path     string          `json:"path"`
	Pristine patchset.Digest `json:"pristine"`
	Want     patchset.Digest `json:"want"`
	Mtime    int64           `json:"mtime,omitempty"` // of the pristine file, nanoseconds since 1970
	Sets     []string        `json:"sets"`            // that touch it
}

// Last is the last command that changed something here.
type Last struct {
	Command string    `json:"command"`
	Time    time.Time `json:"time"`
	Sets    []string  `json:"sets"`
	Reason  string    `json:"reason,omitempty"`
	Result  string    `json:"result,omitempty"`
}

// DamagedError says which record cannot be used.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string { return e.Path + ": " + e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

func parseReceipt(root string, text []byte) (*Receipt, error) {
	if text == nil {
		return &Receipt{Schema: 1}, nil
	}
	var r Receipt
	err := json.Unmarshal(text, &r)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return nil, &DamagedError{filepath.Join(root, txn.Folder, "receipt.json"), err}
	}
	return &r, nil
}

func (r *Receipt) check() error {
	if r.Schema != 1 {
		return fmt.Errorf("schema %d is not known to this version", r.Schema)
	}
	if len(r.Sets) > maxEnabled || len(r.Files) > maxTracked {
		return fmt.Errorf("%d sets and %d files are more than there can be", len(r.Sets), len(r.Files))
	}
	for _, s := range r.Sets {
		if !isID(s.ID) {
			return fmt.Errorf("set %q", s.ID)
		}
		if unprintable(s.Version) || unprintable(s.Variant) {
			return fmt.Errorf("set %s: version %q, variant %q", s.ID, s.Version, s.Variant)
		}
		if s.Diff != "" && !isDigest(s.Diff) {
			return fmt.Errorf("set %s: not a digest: %q", s.ID, s.Diff)
		}
		for _, v := range s.Env {
			if !isName(v.Name) || strings.ContainsRune(v.Value, 0) {
				return fmt.Errorf("set %s: variable %q", s.ID, v.Name)
			}
		}
	}
	seen := map[string]bool{}
	for _, f := range r.Files {
		switch {
		case !ofInstall(f.Path):
			return fmt.Errorf("a file outside of the install: %q", f.Path)
		case seen[f.Path]:
			return fmt.Errorf("%s is there twice", f.Path)
		case !isDigest(f.Pristine) || !isDigest(f.Want):
			return fmt.Errorf("%s: not a digest", f.Path)
		}
		seen[f.Path] = true
	}
	if r.Entry.Path != "" && (!filepath.IsAbs(r.Entry.Path) || !filepath.IsAbs(r.Entry.Real)) {
		return errors.New("the entry's file is not absolute")
	}
	if strings.ContainsFunc(r.Entry.Path+r.Entry.Real, unicode.IsControl) {
		return fmt.Errorf("the entry's file is %q", r.Entry.Path)
	}
	return nil
}

// Bounds of a receipt: more would take minutes.
const (
	maxEnabled = 256
	maxTracked = 10_000
)

// unprintable holds for what would do something to a terminal, or hide there.
func unprintable(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// ofInstall says whether a record may name this path from the root.
func ofInstall(path string) bool {
	return filepath.IsLocal(path) && filepath.Clean(path) == path && path != "." && !unprintable(path) && !slices.Contains(strings.Split(path, "/"), txn.Folder)
}

func isID(s string) bool {
	return s != "" && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func isName(s string) bool {
	return s != "" && (s[0] < '0' || s[0] > '9') && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func isDigest(d patchset.Digest) bool {
	return len(d) == 64 && strings.Trim(string(d), "0123456789abcdef") == ""
}

func (r *Receipt) text() []byte {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		panic(err) // only strings, numbers and times in it
	}
	return append(b, '\n')
}

// Set returns the enabled set of that id.
func (r *Receipt) Set(id string) (Enabled, bool) {
	i := slices.IndexFunc(r.Sets, func(s Enabled) bool { return s.ID == id })
	if i < 0 {
		return Enabled{}, false
	}
	return r.Sets[i], true
}

// File returns what is recorded of a path.
func (r *Receipt) File(path string) (Tracked, bool) {
	i := slices.IndexFunc(r.Files, func(f Tracked) bool { return f.Path == path })
	if i < 0 {
		return Tracked{}, false
	}
	return r.Files[i], true
}

// Env is what the enabled sets want in the block, in the order they were applied.
func (r *Receipt) Env() []block.Var {
	var all []block.Var
	for _, s := range r.Sets {
		if s.NoEnv {
			continue
		}
		for _, v := range s.Env {
			all = append(all, block.Var{Name: v.Name, Value: v.Value})
		}
	}
	return all
}

// names lists the variables of Env.
func (r *Receipt) names() []string {
	var all []string
	for _, v := range r.Env() {
		all = append(all, v.Name)
	}
	return all
}
