package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// options are the flags of all commands, and the rest of the line.
type options struct {
	command *command
	args    []string // sets
	cmd     []string // behind "--"
	hasCmd  bool

	python, root, site string
	patches            []string
	json, quiet        bool
	verbose            bool
	color              string
	wait               time.Duration

	dry, diff                bool
	reason, result           string
	noEnv, listedOnly, check bool
	allowCheck, all, purge   bool
	env                      []string
	fast, p2p                bool
	release                  string
	limit                    int
	markdown, csv, yes       bool
	gpu                      gpuOptions
	try                      trialOptions

	fleet   fleetOptions
	flags   *pflag.FlagSet // as they were parsed
	carried []carriedSets  // --patches of the machine that called this one
}

// defaultSet is what apply means without a name.
const defaultSet = "force-custom-ar-pcie"

func commonFlags(f *pflag.FlagSet, o *options) {
	f.StringVar(&o.python, "python", "", "the interpreter that will start the server `PATH`")
	f.StringVar(&o.root, "root", "", "the install in `DIR`, without asking an interpreter")
	f.StringVar(&o.site, "sitecustomize", "", "with --root: the `FILE` for the environment entry")
	f.StringArrayVar(&o.patches, "patches", nil, "a `DIR` of your own patch sets (repeatable)")
	f.BoolVar(&o.json, "json", false, "one JSON object on standard output")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print errors only")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print digests, hunks and notes as well")
	f.StringVar(&o.color, "color", "auto", "`WHEN` to colour: auto, always, never")
	f.DurationVar(&o.wait, "lock-timeout", 10*time.Second, "how long to wait for another sgpatch, `DUR`")
	hostFlags(f, o)
}

func changeFlags(f *pflag.FlagSet, o *options) {
	f.BoolVarP(&o.dry, "dry-run", "n", false, "say what would be done and change nothing")
	f.BoolVar(&o.diff, "diff", false, "print the differences")
	f.StringVar(&o.reason, "reason", "", "why, for the records, `TEXT`")
}

func applyFlags(f *pflag.FlagSet, o *options) {
	changeFlags(f, o)
	fleetFlags(f, o)
	f.BoolVar(&o.noEnv, "no-env", false, "code only, no entry in sitecustomize.py")
	f.StringArrayVar(&o.env, "env", nil, "another value for an entry, `NAME=VALUE` (repeatable)")
	f.BoolVar(&o.listedOnly, "listed-only", false, "refuse contents that are not in the release table")
	f.BoolVar(&o.check, "check", false, "run the behaviour check on listed contents, too")
	f.BoolVar(&o.allowCheck, "allow-check", false, "let the check.py of your own sets (--patches) run")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask, whatever results are on record")
}

func revertFlags(f *pflag.FlagSet, o *options) {
	changeFlags(f, o)
	f.BoolVar(&o.all, "all", false, "every set that is in place")
	f.BoolVar(&o.purge, "purge", false, "take the records (.sgpatch) away as well")
	f.StringVar(&o.result, "result", "", "what was measured, for the records, `TEXT`")
}

func verifyFlags(f *pflag.FlagSet, o *options) {
	f.BoolVar(&o.fast, "fast", false, "start no interpreter: use what apply recorded")
	f.BoolVar(&o.p2p, "p2p", false, "ask the driver whether every GPU pair can reach its peer")
}

func showFlags(f *pflag.FlagSet, o *options) {
	f.StringVar(&o.release, "release", "", "for this release of SGLang, `V`, instead of the install")
}

func historyFlags(f *pflag.FlagSet, o *options) {
	f.IntVar(&o.limit, "limit", 0, "only the last `N` entries")
	f.BoolVar(&o.markdown, "markdown", false, "as a table to paste into an issue")
	f.BoolVar(&o.csv, "csv", false, "as comma-separated values")
}

// parse reads a command's line. What stands behind "--" is never looked at.
func parse(c *command, argv []string) (*options, error) {
	o := &options{command: c}
	for i, a := range argv {
		if a == "--" {
			o.cmd, o.hasCmd, argv = argv[i+1:], true, argv[:i]
			break
		}
	}
	f := flagSet(c, o)
	if err := f.Parse(argv); err != nil {
		if err == pflag.ErrHelp {
			return nil, err
		}
		return nil, usageError{err}
	}
	o.args, o.flags = f.Args(), f
	return o, o.validate()
}

func flagSet(c *command, o *options) *pflag.FlagSet {
	f := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	commonFlags(f, o)
	if c.flags != nil {
		c.flags(f, o)
	}
	return f
}

func (o *options) validate() error {
	switch o.color {
	case "auto", "always", "never":
	default:
		return usagef("--color %s: auto, always or never", o.color)
	}
	switch {
	case o.hasCmd && o.command.name != "verify" && o.command.name != "trial":
		return usagef("%s takes no command behind --", o.command.name)
	case len(o.args) > 0 && o.command.args == "":
		return usagef("%s takes no arguments: %s", o.command.name, strings.Join(o.args, " "))
	case o.hasCmd && len(o.cmd) == 0:
		return usagef("there is no command behind --")
	case o.site != "" && o.root == "" && o.command.name != "revert":
		return usagef("--sitecustomize goes with --root")
	case o.all && len(o.args) > 0:
		return usagef("--all and the name of a set exclude each other")
	case o.wait < 0:
		return usagef("--lock-timeout %s: a time to wait is not negative", o.wait)
	}
	for _, e := range o.env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return usagef("--env %s: NAME=VALUE", e)
		} else if strings.ContainsRune(e, 0) {
			return usagef("--env %s: a value cannot hold a NUL", name)
		}
	}
	return o.validateFleet()
}

// told is the sitecustomize that the operator named, absolute, "" for none.
func (o *options) told() string {
	if o.site == "" {
		return ""
	}
	abs, err := filepath.Abs(o.site)
	if err != nil {
		return o.site
	}
	return abs
}

func (o *options) envValues() map[string]string {
	all := map[string]string{}
	for _, e := range o.env {
		name, value, _ := strings.Cut(e, "=")
		all[name] = value
	}
	return all
}

// colour says whether text for this file may carry colours.
func (o *options) colour(w io.Writer) bool {
	switch {
	case o.color == "always":
		return true
	case o.color == "never" || os.Getenv("NO_COLOR") != "":
		return false
	}
	return onTerminal(w)
}

func (c *command) usage() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sgpatch %s %s\n\n%s.\n", c.name, c.args, c.does)
	o := &options{}
	own := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	if c.flags != nil {
		c.flags(own, o)
		fmt.Fprintf(&b, "\nFlags of this command:\n%s", own.FlagUsages())
	}
	common := pflag.NewFlagSet("", pflag.ContinueOnError)
	commonFlags(common, o)
	fmt.Fprintf(&b, "\nFlags of every command:\n%s", common.FlagUsages())
	return b.String()
}
