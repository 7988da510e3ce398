package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

func commands() []*command {
	return []*command{
		{"apply", "[SET…]", "Puts patch sets in place: code and environment entry, all of it or nothing", applyFlags, applyCommand},
		{"verify", "[SET…] [-- CMD…]", "Judges code and environment and changes nothing; with CMD, replaces itself by CMD if all holds", verifyFlags, verifyCommand},
		{"revert", "[SET…]", "Takes patch sets out again, byte for byte", revertFlags, revertCommand},
		{"status", "[SET…]", "Says what is in place here, in what state, and what was done last", nil, statusCommand},
		{"preflight", "", "Runs SGLang's own all-reduce on the GPUs: are its sums right, and is it faster than NCCL", preflightFlags, preflightCommand},
		{"trial", "[SET…] -- CMD…", "Measures CMD without and with the sets, and keeps them only if that is better", trialFlags, trialCommand},
		{"doctor", "", "Looks at interpreter, install, environment, servers and GPUs, and says what is wrong and what else to try", doctorFlags, doctorCommand},
		{"list", "", "Lists the patch sets, their releases, and which fit this install", nil, listCommand},
		{"show", "SET", "Prints the exact diff for this install", showFlags, showCommand},
		{"history", "", "Says what was done on this machine, when, why, with which result", historyFlags, historyCommand},
		{"alias", "DIR", "Adds the name patch for this program in DIR", nil, aliasCommand},
		{"completion", "bash|zsh|fish", "Prints a completion script for a shell", nil, completionCommand},
		{"version", "", "Prints the version of this program", nil, versionCommand},
		{"help", "[COMMAND]", "Explains a command", nil, helpCommand},
	}
}

// reserved names belong to commands of later versions; under the name patch
// they are not handed on to GNU patch, which would take them for files.
func reserved(name string) bool {
	return name == "port"
}

func lookup(name string) *command {
	switch name {
	case "-h", "--help":
		name = "help"
	case "--version":
		name = "version"
	}
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}

func usage() string {
	var b strings.Builder
	b.WriteString("sgpatch patches an installed SGLang, and takes the patch out again without a trace.\n\nUsage: sgpatch COMMAND [FLAGS] [SET…]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-10s %-18s %s\n", c.name, c.args, c.does)
	}
	b.WriteString("\nSET defaults to " + defaultSet + " for apply, and to all that is in place for verify and revert.\nsgpatch help COMMAND explains one, with its flags.\n\nExit codes: 0 done, or it holds; 1 it does not hold; 2 usage; 3 refused, nothing changed;\n4 a host could not be asked; 5 failed, everything put back; 6 failed, and not all could be put back; 130 interrupted.\n")
	return b.String()
}

func helpCommand(_ context.Context, o *options) (*Report, error) {
	r := newReport("help")
	r.text = usage()
	if len(o.args) > 0 {
		c := lookup(o.args[0])
		if c == nil {
			return r, usagef("there is no command %q", o.args[0])
		}
		r.text = c.usage()
	}
	return r, nil
}

// versionText carries the marker, so that it is in the program's file.
func versionText() string {
	return fmt.Sprintf("sgpatch %s (%s/%s, %s)\n", version, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

func versionCommand(_ context.Context, o *options) (*Report, error) {
	r := newReport("version")
	r.text = versionText()
	if o.verbose {
		r.text += marker + "\n"
	}
	return r, nil
}

func aliasCommand(_ context.Context, o *options) (*Report, error) {
	r := newReport("alias")
	if len(o.args) != 1 {
		return r, usagef("alias takes the directory that shall get the name patch")
	}
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	path := filepath.Join(o.args[0], "patch")
	made, err := makeAlias(self, path)
	if made {
		r.Changed = append(r.Changed, path)
		r.text = path + " is sgpatch now; GNU patch goes on working through it\n"
	} else if err == nil {
		r.text = path + " is sgpatch already\n"
	}
	return r, err
}
