package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/verify"
)

// historyFile is the JSON-lines file of this machine, or of this user.
func historyFile() string {
	dir := os.Getenv("SGPATCH_STATE_DIR")
	if dir == "" && os.Geteuid() == 0 {
		dir = "/var/lib/sgpatch"
	}
	if dir == "" {
		base := os.Getenv("XDG_STATE_HOME")
		if base == "" {
			home := os.Getenv("HOME")
			if home == "" {
				_, home = install.Account(os.Geteuid())
			}
			base = filepath.Join("/", home, ".local", "state")
		}
		dir = filepath.Join(base, "sgpatch")
	}
	return filepath.Join(dir, "history.jsonl")
}

// record adds what a command did to the history. It is a convenience: the
// receipt beside the install is what counts.
func (o *options) record(r *Report, g patcher.Goal) {
	if o.dry || (len(r.Changed) == 0 && g.Reason == "" && g.Result == "") {
		return
	}
	e := HistoryEntry{Time: time.Now().UTC().Truncate(time.Second), Host: r.Host, User: userName(), Command: r.Command, Sets: append(g.Apply, g.Revert...), Install: r.Install, Hardware: hardware(), Changed: r.Changed, Reason: g.Reason, Result: g.Result, Exit: r.Exit, Program: version}
	for _, s := range r.Sets {
		if contains(e.Sets, s.ID) {
			for _, f := range s.Files {
				f.Hunks = []HunkReport{}
				e.Files = append(e.Files, f)
			}
		}
	}
	if e.Sets == nil {
		e.Sets = []string{}
	}
	line, err := json.Marshal(e)
	if err == nil {
		err = patcher.Record(historyFile(), line)
	}
	if err != nil {
		r.find(verify.Finding{Code: "history", Severity: "warning", Path: historyFile(), Message: "the history cannot be written: " + err.Error()})
	}
}

// userName is who did it; behind sudo, who called it.
func userName() string {
	if u := os.Getenv("SUDO_USER"); u != "" {
		return u
	}
	if name, _ := install.Account(os.Geteuid()); name != "" {
		return name
	}
	return strconv.Itoa(os.Geteuid())
}

func historyCommand(ctx context.Context, o *options) (*Report, error) {
	r := newReport("history")
	if o.markdown && (o.csv || o.json) || o.csv && o.json {
		return r, usagef("--json, --markdown and --csv exclude each other")
	}
	all, torn, err := readHistory("")
	if err != nil {
		return r, &patcher.RefusedError{Code: "history", Path: historyFile(), Message: "the history cannot be read: " + err.Error(), Hint: "SGPATCH_STATE_DIR names another folder"}
	}
	if o.limit > 0 && len(all) > o.limit {
		all = all[len(all)-o.limit:]
	}
	if torn > 0 {
		r.find(verify.Finding{Code: "history", Severity: "note", Path: historyFile(), Message: strconv.Itoa(torn) + " lines of the history are torn and left out"})
	}
	r.Entries = []any{}
	for _, e := range all {
		r.Entries = append(r.Entries, e)
	}
	switch {
	case o.markdown:
		r.text = markdown(all)
	case o.csv:
		r.text = commaSeparated(all)
	}
	return r, nil
}

// readHistory returns what is on record, oldest first, and how many lines of it
// cannot be read. Lines without a part are passed over, and not even parsed.
func readHistory(part string) (all []HistoryEntry, torn int, err error) {
	f, err := os.Open(historyFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	var line []byte
	for r := bufio.NewReaderSize(f, 64<<10); err == nil; {
		var more []byte
		more, err = r.ReadSlice('\n')
		line = append(line, more...)
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
			continue
		}
		if text := bytes.TrimSpace(line); len(text) > 0 && bytes.Contains(text, []byte(part)) {
			var e HistoryEntry
			if json.Unmarshal(text, &e) != nil {
				torn++
			} else {
				all = append(all, e)
			}
		}
		line = line[:0]
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, torn, err
}
