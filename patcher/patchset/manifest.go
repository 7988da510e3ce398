package patchset

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

const maxManifest = 1 << 20

// manifest is manifest.toml as it is written.
type manifest struct {
	ID        string   `toml:"id"`
	Version   string   `toml:"version"`
	Title     string   `toml:"title"`
	Conflicts []string `toml:"conflicts"`

	Env    []manifestEnv `toml:"env"`
	Shadow []struct {
		Name   string `toml:"name"`
		Reason string `toml:"reason"`
	} `toml:"shadow"`
	Void struct {
		Args []string `toml:"args"`
		Env  []struct {
			Names  []string `toml:"names"`
			Option string   `toml:"option"`
			Reason string   `toml:"reason"`
		} `toml:"env"`
	} `toml:"void"`

	Unsupported []struct {
		From   string `toml:"from"`
		To     string `toml:"to"`
		Reason string `toml:"reason"`
	} `toml:"unsupported"`
	Superseded []manifestSpan `toml:"superseded"`
	Note       []manifestSpan `toml:"note"`
	Result     []struct {
		Hardware string `toml:"hardware"`
		Outcome  string `toml:"outcome"`
		Text     string `toml:"text"`
		Source   string `toml:"source"`
	} `toml:"result"`
}

type manifestEnv struct {
	Name     string  `toml:"name"`
	Value    *string `toml:"value"`
	Switch   bool    `toml:"switch"`
	Optional bool    `toml:"optional"`
}

type manifestSpan struct {
	From string `toml:"from"`
	To   string `toml:"to"`
	Text string `toml:"text"`
}

// parseManifest reads a manifest, and checks it unless it is sound. What it says
// about variants and rows is for the caller to check.
func parseManifest(text []byte, sound bool) (Set, error) {
	var m manifest
	if sound {
		err := decode(text, &m)
		return m.set(), err
	}
	if err := vetManifest(text); err != nil {
		return Set{}, err
	}
	if err := decode(text, &m); err != nil {
		return Set{}, err
	}
	if err := checkKeys(text, &m); err != nil {
		return Set{}, err
	}
	s := m.set()
	if err := checkEnv(m.Env); err != nil {
		return Set{}, err
	}
	if err := checkSet(s); err != nil {
		return Set{}, err
	}
	return s, nil
}

// vetManifest refuses text on which the TOML reader needs much time, memory or
// stack: deeply nested arrays, inline tables, dotted keys, and very many keys
// (20,000 of them take 1.5 s). No manifest comes near these numbers.
func vetManifest(text []byte) error {
	if !utf8.Valid(text) {
		return &DataError{Reason: "not UTF-8"}
	}
	for _, l := range []struct {
		what string
		most int
	}{{"[", 10_000}, {"{", 100}, {".", 20_000}, {"=", 20_000}} {
		if bytes.Count(text, []byte(l.what)) > l.most {
			return &DataError{Reason: fmt.Sprintf("more than %d %q", l.most, l.what)}
		}
	}
	n := 0
	for line := range bytes.Lines(text) {
		if n++; bytes.Count(line, []byte{'.'}) > 100 {
			return &DataError{Line: n, Reason: "more than 100 dots in a line"}
		}
	}
	return nil
}

// set turns the manifest into the set that it describes.
func (m manifest) set() Set {
	s := Set{ID: m.ID, Version: m.Version, Title: m.Title, Conflicts: m.Conflicts}
	for _, e := range m.Env {
		value := ""
		if e.Value != nil {
			value = *e.Value
		}
		s.Env = append(s.Env, EnvEntry{Name: e.Name, Value: value, Switch: e.Switch, Optional: e.Optional})
	}
	for _, e := range m.Shadow {
		s.Shadows = append(s.Shadows, EnvShadow(e))
	}
	s.Void.Args = m.Void.Args
	for _, e := range m.Void.Env {
		s.Void.Env = append(s.Void.Env, VoidEnv(e))
	}
	for _, u := range m.Unsupported {
		s.Unsupported = append(s.Unsupported, Span{u.From, u.To, u.Reason})
	}
	s.Superseded, s.Notes = spans(m.Superseded), spans(m.Note)
	for _, r := range m.Result {
		s.Results = append(s.Results, Result(r))
	}
	return s
}

func spans(in []manifestSpan) []Span {
	var out []Span
	for _, s := range in {
		out = append(out, Span(s))
	}
	return out
}

func bad(reason string, args ...any) error {
	return &DataError{Reason: fmt.Sprintf(reason, args...)}
}
