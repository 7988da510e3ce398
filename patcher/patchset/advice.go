package patchset

import (
	"fmt"
	"slices"
)

// Advice is one thing to try on a host, with what is known of it.
type Advice struct {
	Title      string   `toml:"title"`
	Switch     string   `toml:"switch"` // what to type or to set
	From       string   `toml:"from"`   // releases, "" for no bound
	To         string   `toml:"to"`
	Capability []string `toml:"capability"` // CUDA compute capabilities, none for all
	Link       string   `toml:"link"`       // "pcie", "nvlink" or "" for both
	Result     string   `toml:"result"`
	Fails      string   `toml:"fails"`
	Source     string   `toml:"source"`
	Confidence string   `toml:"confidence"` // "measured", "read" or "reported"
}

// Overwrite says that SGLang sets variables itself when it starts.
type Overwrite struct {
	From      string   `toml:"from"`
	Variables []string `toml:"variables"`
	When      string   `toml:"when"`
}

// Guide is what doctor has to say beyond this machine.
type Guide struct {
	Advice     []Advice    `toml:"advice"`
	Overwrites []Overwrite `toml:"overwrites"`
}

// LoadGuide reads and checks advice.toml.
func LoadGuide(text []byte) (Guide, error) {
	var g Guide
	if err := decode(text, &g); err != nil {
		return g, err
	}
	if err := checkKeys(text, &g); err != nil {
		return g, err
	}
	for _, a := range g.Advice {
		if a.Title == "" || a.Switch == "" || a.Source == "" || (a.Result == "" && a.Fails == "") || !slices.Contains([]string{"measured", "read", "reported"}, a.Confidence) || !slices.Contains([]string{"", "pcie", "nvlink"}, a.Link) {
			return g, fmt.Errorf("advice %q: title, switch, source, a result or a failure, and a confidence are needed", a.Title)
		}
	}
	for _, o := range g.Overwrites {
		if o.From == "" || len(o.Variables) == 0 || o.When == "" {
			return g, fmt.Errorf("overwrites from %q: from, variables and when are needed", o.From)
		}
	}
	return g, nil
}

// Unfit says why a piece of advice is not for a release on such hardware, ""
// if it is, or if nobody knows what the hardware is.
func (a Advice) Unfit(release string, capabilities []string, link string) string {
	span := Span{From: a.From, To: a.To}
	switch {
	case release != "" && !span.Contains(release):
		return "not for SGLang " + release
	case len(a.Capability) > 0 && len(capabilities) > 0 && !slices.ContainsFunc(capabilities, func(c string) bool { return slices.Contains(a.Capability, c) }):
		return fmt.Sprintf("for compute capability %v, and not %v", a.Capability, capabilities)
	case a.Link != "" && link != "" && a.Link != link:
		return map[string]string{"pcie": "for GPUs without NVLink", "nvlink": "for GPUs linked by NVLink"}[a.Link]
	}
	return ""
}
