package patcher

import (
	"os"
	"strings"

	"sgpatch/patcher/block"
	"sgpatch/patcher/install"
)

// Hand is a line that sets one of our variables and was written by somebody else.
type Hand struct {
	Path string
	block.Line
}

// profiles are the files whose lines may set variables for a login or a unit.
var profiles = []string{
	"/etc/environment", "/etc/profile", "/etc/profile.d/*.sh", "/etc/bash.bashrc", "/etc/zsh/zshenv",
	"/etc/systemd/system/*.service", "/etc/systemd/system/*.d/*.conf",
	"~/.profile", "~/.bash_profile", "~/.bash_login", "~/.bashrc", "~/.zshenv", "~/.zprofile", "~/.zshrc",
	"~/.config/environment.d/*.conf",
}

const maxProfile = 1 << 20

// ByHand looks for lines that set these variables outside of our block: in the
// sitecustomize, in shell profiles and in unit files.
func (s *Site) ByHand(names []string) []Hand {
	var all []Hand
	for _, l := range block.Hand(s.Entry, names) {
		all = append(all, Hand{s.In.Site, l})
	}
	for _, p := range s.profiles() {
		for _, l := range block.Shell(p.text, names) {
			all = append(all, Hand{p.path, l})
		}
	}
	return all
}

// Besides finds a line of the sitecustomize that names a variable of the enabled
// sets outside of our block: it may set, or take away, what the block sets.
func (s *Site) Besides() (line int, name string) {
	return block.Beside(s.Entry, s.Receipt.names())
}

type profile struct {
	path string
	text []byte
}

func readProfiles() (all []profile) {
	base := map[string]string{"": "/", "~": os.Getenv("HOME")}
	for _, p := range profiles {
		start, pattern, _ := strings.Cut(p, "/")
		if base[start] == "" {
			continue
		}
		for _, f := range install.Glob(base[start], pattern) {
			if st, err := os.Stat(f); err != nil || !st.Mode().IsRegular() || st.Size() > maxProfile {
				continue
			}
			if text, err := os.ReadFile(f); err == nil {
				all = append(all, profile{f, text})
			}
		}
	}
	return all
}
