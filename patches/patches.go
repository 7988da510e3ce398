// Package patches is data: one folder for each patch set, embedded. It holds
// no code; patcher/patchset.Load reads and checks it. A new set is a new
// folder, a new SGLang release is new rows in a releases.tsv.
package patches

import "embed"

// FS holds the folders of the shipped sets, each with its manifest.toml and,
// where the set has them, releases.tsv, check.py and one folder of diffs for
// each variant. Nothing else is embedded.
//
//go:embed */manifest.toml */releases.tsv */check.py */*/*.diff
var FS embed.FS

// Advice is advice.toml: what else to try on a host, for doctor.
// patcher/patchset.LoadGuide reads and checks it.
//
//go:embed advice.toml
var Advice []byte
