package main

import (
	"bufio"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"sgpatch/remote"
)

// fleetOptions say which hosts are meant, and how to get there.
type fleetOptions struct {
	hosts          []string
	file           string
	parallel       int
	sshConfig      string
	sshCommand     string
	connectTimeout time.Duration
	become         bool
	acceptNew      bool
	canary         int
	keepGoing      bool
	takeBack       bool
}

func hostFlags(f *pflag.FlagSet, o *options) {
	f.StringArrayVar(&o.fleet.hosts, "host", nil, "run it on `[user@]host[:port]` over SSH (repeatable)")
	f.StringVar(&o.fleet.file, "hosts", "", "the hosts in `FILE`, one a line; - is standard input")
	f.IntVar(&o.fleet.parallel, "parallel", 16, "at most `N` hosts at a time")
	f.StringVar(&o.fleet.sshConfig, "ssh-config", "", "this `FILE` instead of ~/.ssh/config and the system's")
	f.StringVar(&o.fleet.sshCommand, "ssh-command", "", "make connections with `CMD`, as ssh, instead of our own SSH")
	f.DurationVar(&o.fleet.connectTimeout, "connect-timeout", 0, "time for connection and handshake, `DUR` (10s)")
	f.BoolVar(&o.fleet.become, "become", false, "become root there, with sudo -n")
	f.BoolVar(&o.fleet.acceptNew, "accept-new", false, "record the key of a host of which none is known")
}

// fleetFlags are the flags of apply alone.
func fleetFlags(f *pflag.FlagSet, o *options) {
	f.IntVar(&o.fleet.canary, "canary", 0, "with --host: the first `N` hosts alone, then the others if all went well")
	f.BoolVar(&o.fleet.keepGoing, "keep-going", false, "with --host: go on to further hosts after a failure")
	f.BoolVar(&o.fleet.takeBack, "revert-on-failure", false, "with --host: after a failure take back what this run applied")
}

// stayHere reports whether a flag is for this machine and not for the hosts.
func stayHere(name string) bool {
	return fleetOnly(name) || slices.Contains([]string{"patches", "json", "quiet", "color"}, name)
}

func fleetOnly(name string) bool { return ofFleet().Lookup(name) != nil }

var ofFleet = sync.OnceValue(func() *pflag.FlagSet {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	hostFlags(own, &options{})
	fleetFlags(own, &options{})
	return own
})

// many reports whether other hosts are meant than this one.
func (f *fleetOptions) many() bool { return len(f.hosts) > 0 || f.file != "" }

func (o *options) validateFleet() error {
	if !o.fleet.many() {
		return o.validateNoFleet()
	}
	switch {
	case slices.Contains([]string{"alias", "completion", "help"}, o.command.name):
		return usagef("%s is about this machine: it takes no --host", o.command.name)
	case o.hasCmd || o.command.name == "trial":
		return usagef("%s starts a command on this machine: it takes no --host", o.command.name)
	case o.fleet.parallel < 1:
		return usagef("--parallel %d: at least one", o.fleet.parallel)
	case o.fleet.connectTimeout < 0:
		return usagef("--connect-timeout %s: a time to wait is not negative", o.fleet.connectTimeout)
	case o.flags.Changed("canary") && o.fleet.canary < 1:
		return usagef("--canary %d: at least one", o.fleet.canary)
	case o.fleet.takeBack && o.fleet.keepGoing:
		return usagef("--revert-on-failure and --keep-going exclude each other")
	case o.flags.Changed("ssh-command") && len(strings.Fields(o.fleet.sshCommand)) == 0:
		return usagef("--ssh-command is empty")
	}
	for _, h := range o.fleet.hosts {
		if err := remote.CheckName(h); err != nil {
			return usagef("--host %w", err)
		}
	}
	return nil
}

func (o *options) validateNoFleet() (wrong error) {
	o.flags.Visit(func(f *pflag.Flag) {
		if fleetOnly(f.Name) {
			wrong = usagef("--%s goes with --host or --hosts", f.Name)
		}
	})
	return wrong
}

// names lists the hosts, each once, in the order given.
func (f *fleetOptions) names() ([]string, error) {
	all := slices.Clone(f.hosts)
	if f.file != "" {
		more, err := readHosts(f.file)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	if len(all) == 0 {
		return nil, usagef("--hosts %s: no host in it", f.file)
	}
	return unique(all), nil
}

func readHosts(path string) ([]string, error) {
	var in io.Reader = os.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, usageError{err}
		}
		defer f.Close()
		in = f
	}
	var all []string
	for n, lines := 1, bufio.NewScanner(in); ; n++ {
		if !lines.Scan() {
			return all, lines.Err()
		}
		name, _, _ := strings.Cut(lines.Text(), "#")
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if err := remote.CheckName(name); err != nil {
			return nil, usagef("%s:%d: %w", path, n, err)
		}
		all = append(all, name)
	}
}
