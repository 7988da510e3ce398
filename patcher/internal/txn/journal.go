package txn

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
)

// journal is what is on disk while a commit runs.
type journal struct {
	Schema  int       `json:"schema"`
	ID      string    `json:"id"`
	Command string    `json:"command"`
	Started time.Time `json:"started"`
	Receipt string    `json:"receipt"`        // digest of the receipt that ends the commit
	Same    bool      `json:"same,omitempty"` // it is the one that was there before, and cannot tell
	Writes  []entry   `json:"writes"`
}

type entry struct {
	Rel   string      `json:"rel,omitempty"`
	Path  string      `json:"path"`
	Old   string      `json:"old,omitempty"`
	New   string      `json:"new,omitempty"`
	Perm  fs.FileMode `json:"perm,omitempty"`
	Mtime int64       `json:"mtime,omitempty"` // of the old content, nanoseconds since 1970
}

func split(path string) (dir, base string) {
	return filepath.Dir(path), filepath.Base(path)
}

// staged is the name of a file while it waits beside its target.
func (j *journal) staged(base string) string {
	return "." + base + "." + j.ID + ".sgpatch"
}

// stagedFor is the target's name in the name of a staged file.
func stagedFor(name string) (base string, ok bool) {
	name, isOurs := strings.CutSuffix(name, ".sgpatch")
	i := strings.LastIndexByte(name, '.')
	if !isOurs || i < 2 || name[0] != '.' || len(name)-i-1 != idLen || !isHex(name[i+1:]) {
		return "", false
	}
	return name[1:i], true
}

const idLen = 12

// errTorn says that a journal is no JSON text: it was not written to its end.
var errTorn = errors.New("torn journal")

// mostWrites bounds what a journal may ask for.
const mostWrites = 10_000

func parseJournal(text []byte) (*journal, error) {
	var j journal
	if !json.Valid(text) {
		return nil, errTorn
	}
	if err := json.Unmarshal(text, &j); err != nil {
		return nil, fmt.Errorf("damaged journal: %w", err)
	}
	if len(j.Writes) > mostWrites {
		return nil, errors.New("damaged journal: more writes than a commit has")
	}
	if j.Schema != 1 || len(j.ID) != idLen || !isHex(j.ID) || !isDigest(j.Receipt) {
		return nil, errors.New("damaged journal")
	}
	for _, e := range j.Writes {
		if !filepath.IsAbs(e.Path) || (e.Old != "" && !isDigest(e.Old)) || (e.New != "" && !isDigest(e.New)) {
			return nil, fmt.Errorf("damaged journal: entry %q", e.Path)
		}
	}
	return &j, nil
}

func isHex(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil
}

// Interrupted tells which command left a journal behind, "" for an unreadable one.
func Interrupted(text []byte) (command string) {
	j, err := parseJournal(text)
	if err != nil {
		return ""
	}
	return j.Command
}
