// Package patchset loads patch sets and places their hunks in file contents.
//
// A patch set is one intent (open a gate, set NCCL variables) as data: a
// manifest, one folder of unified diffs for each variant, a release table and
// perhaps a check. Everything here is pure: bytes in, bytes or a typed error
// out. There is no fuzz and no whitespace leniency anywhere in it; a hunk fits
// exactly, once, in order and in its scope, or it does not fit.
package patchset

import (
	"crypto/sha256"
	"encoding/hex"
)

// Digest is a SHA-256 in 64 lower-case hex digits. The zero value, "", stands
// for a file that does not exist.
type Digest string

// DigestOf returns the digest of a content.
func DigestOf(content []byte) Digest {
	sum := sha256.Sum256(content)
	return Digest(hex.EncodeToString(sum[:]))
}

// Set is one patch set, completely checked by Load.
type Set struct {
	ID      string
	Version string
	Title   string

	Env         []EnvEntry  // in manifest order
	Conflicts   []string    // ids of sets that must not be in place together with this one
	Shadows     []EnvShadow // variables that fight with this set
	Void        Void        // what makes the set void although it is in place
	Unsupported []Span      // releases refused, with the reason
	Superseded  []Span      // releases that make the set needless, with what to use instead
	Notes       []Span      // things to know on some releases
	Results     []Result    // published measurements of this set

	Variants []Variant // sorted by name; none for a set of environment entries only
	Rows     []Row     // the release table, in file order
	Check    []byte    // check.py, nil if there is none
	Tried    bool      // every row was tried on the published files, scopes included
}

// EnvEntry is one variable that a set puts into sitecustomize.py.
type EnvEntry struct {
	Name     string
	Value    string // the default; "" with Optional means: not set unless asked for
	Switch   bool   // read as SGLang's get_bool_env_var does: "1" and "true" in any case are on
	Optional bool   // has no default: written only when a value was given
}

// EnvShadow is a variable which, when it is on, hides this set or is hidden by it.
type EnvShadow struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Void lists what makes a set void although it is in place.
type Void struct {
	Args []string  `json:"args,omitempty"` // options of the server, as "--disable-custom-all-reduce"
	Env  []VoidEnv `json:"env,omitempty"`
}

// VoidEnv is an option inside a comma-separated variable ("expandable_segments:True").
type VoidEnv struct {
	Names  []string `json:"names"`
	Option string   `json:"option"`
	Reason string   `json:"reason"`
}

// Span is a range of releases, both ends included ("" is open), with a text.
type Span struct {
	From, To string
	Text     string
}

// Result is a published measurement.
type Result struct {
	Hardware string `json:"hardware"`
	Outcome  string `json:"outcome"` // "better", "worse" or "mixed"
	Text     string `json:"text"`
	Source   string `json:"source"`
}

// Row is one line of the release table.
type Row struct {
	Release  string
	Path     string // slash-separated, from the root
	Pristine Digest
	Patched  Digest
	Variant  string
}

// Variant is the set worked out for particular file contents.
type Variant struct {
	Name  string
	Files []File // sorted by path
	Text  []byte // the unified diff as shipped
}
