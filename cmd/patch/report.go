package main

import (
	"encoding/json"
	"io"
	"os"
	"time"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/patcher/patchset"
	"sgpatch/verify"
	"sgpatch/verify/doctor"
	"sgpatch/verify/preflight"
	"sgpatch/verify/trial"
)

// Report is the one thing a command returns: `--json` encodes it, and the text
// for people is printed from it. docs/report.schema.json describes it; fields
// are only ever added.
type Report struct {
	Schema   int              `json:"schema"`
	Command  string           `json:"command"`
	Exit     int              `json:"exit"`
	Host     string           `json:"host"`
	Install  *InstallReport   `json:"install,omitempty"`
	Sets     []SetReport      `json:"sets"`
	Findings []verify.Finding `json:"findings"`
	DryRun   bool             `json:"dry_run"`
	Changed  []string         `json:"changed"`
	Receipt  *patcher.Receipt `json:"receipt,omitempty"`
	Entries  []any            `json:"entries,omitzero"` // history, list
	Diff     string           `json:"diff,omitempty"`   // --diff, show

	Checks       []doctor.Check `json:"checks,omitempty"`       // doctor
	Measurements *measurements  `json:"measurements,omitempty"` // preflight, trial

	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"` // the next command, with Error

	text string // what a command like help has to say instead of a report
}

// measurements are of one of the two commands that measure. From another host
// only those of a preflight come.
type measurements struct {
	*preflight.Result
	trial *trial.Result
}

func (m *measurements) MarshalJSON() ([]byte, error) {
	if m.trial != nil {
		return json.Marshal(m.trial)
	}
	return json.Marshal(m.Result)
}

func (m *measurements) UnmarshalJSON(text []byte) error {
	m.Result = &preflight.Result{}
	return json.Unmarshal(text, m.Result)
}

// InstallReport says which SGLang a report is about.
type InstallReport struct {
	Root          string `json:"root"`
	Python        string `json:"python"`
	Release       string `json:"release"`
	Editable      bool   `json:"editable"`
	Sitecustomize string `json:"sitecustomize"`
}

// SetReport is one patch set in an install.
type SetReport struct {
	ID      string       `json:"id"`
	Version string       `json:"version"`
	Title   string       `json:"title,omitempty"`
	Variant string       `json:"variant"`
	State   string       `json:"state"`
	Listed  bool         `json:"listed"`
	Release string       `json:"release,omitempty"` // whose published contents these are
	Reason  string       `json:"reason,omitempty"`
	Files   []FileReport `json:"files"`
	Env     []EnvReport  `json:"env"`

	enabled bool
}

// FileReport is one file of a set. Digests are SHA-256, "" for no file.
type FileReport struct {
	Path     string       `json:"path"` // from the install's root
	State    string       `json:"state"`
	Pristine string       `json:"pristine"`
	Want     string       `json:"want"`
	Have     string       `json:"have"`
	Hunks    []HunkReport `json:"hunks"`
}

// HunkReport is one hunk: where its old lines start (1 is the first line, 0 is
// nowhere) and by how many lines that is off.
type HunkReport struct {
	Line   int    `json:"line"`
	Offset int    `json:"offset"`
	State  string `json:"state"` // "ok", or why it does not fit
}

// EnvReport is one variable of a set. Have is null when it is absent.
type EnvReport struct {
	Name  string  `json:"name"`
	Want  string  `json:"want"`
	Have  *string `json:"have"`
	From  string  `json:"from"`
	State string  `json:"state"`
}

func newReport(command string) *Report {
	host, _ := os.Hostname()
	return &Report{Schema: 1, Command: command, Host: host, Sets: []SetReport{}, Findings: []verify.Finding{}, Changed: []string{}}
}

func (r *Report) find(f verify.Finding) { r.Findings = append(r.Findings, f) }

func (r *Report) install(in install.Install) {
	r.Install = &InstallReport{in.Root, in.Python, in.Release, in.Editable, in.Site}
}

// set reports a view; env is what is in force, nil if nobody asked.
func (r *Report) set(v patcher.SetView, env []verify.EnvState) {
	s := SetReport{ID: v.ID, Version: v.Version, Title: v.Title, Variant: v.Variant, State: string(v.State), Listed: v.Listed, Release: v.Release, Reason: v.Reason, Files: []FileReport{}, Env: []EnvReport{}, enabled: v.Enabled}
	for _, f := range v.Files {
		fr := FileReport{Path: f.Path, State: string(f.State), Pristine: string(f.Pristine), Want: string(f.Want), Have: string(f.Have), Hunks: []HunkReport{}}
		for _, h := range f.Hunks {
			fr.Hunks = append(fr.Hunks, hunkReport(h))
		}
		s.Files = append(s.Files, fr)
	}
	for _, e := range env {
		s.Env = append(s.Env, EnvReport(e))
	}
	r.Sets = append(r.Sets, s)
}

func hunkReport(h patchset.HunkState) HunkReport {
	state := string(h.Reason)
	if state == "" {
		state = "ok"
	}
	return HunkReport{h.Line, h.Offset, state}
}

// states judges the variables of a view as an asked interpreter has them.
func states(s *patcher.Site, v patcher.SetView) []verify.EnvState {
	have := s.In.Answer.Env
	all := []verify.EnvState{}
	for _, e := range v.Env {
		st := verify.EnvState{Name: e.Name, Want: e.Value, State: "absent"}
		if got, ok := have[e.Name]; ok {
			st.Have, st.State = &got, "ok"
			if (e.Switch && !verify.On(got)) || (!e.Switch && got != e.Value) {
				st.State = "other"
			}
		}
		all = append(all, st)
	}
	return all
}

func (r *Report) encode(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// HistoryEntry is one line of the history.
type HistoryEntry struct {
	Time     time.Time      `json:"time"`
	Host     string         `json:"host"`
	User     string         `json:"user"`
	Command  string         `json:"command"`
	Sets     []string       `json:"sets"`
	Install  *InstallReport `json:"install,omitempty"`
	Hardware string         `json:"hardware,omitempty"` // as "8 x NVIDIA H200"
	Files    []FileReport   `json:"files,omitempty"`
	Changed  []string       `json:"changed"`
	Reason   string         `json:"reason,omitempty"`
	Result   string         `json:"result,omitempty"`
	Exit     int            `json:"exit"`
	Program  string         `json:"program"`
}
