// Command patch patches an installed SGLang on a GPU host and takes the patch
// out again without a trace. Installed as sgpatch and as patch; under the name
// patch, everything that is not one of its commands goes to GNU patch.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/remote"
)

// version is set by the linker.
var version = "0.1.0-dev"

// Exit codes, as the contract has them.
const (
	exitOK          = 0
	exitVerdict     = 1
	exitUsage       = 2
	exitRefused     = 3
	exitUnreached   = 4
	exitFailed      = 5
	exitBroken      = 6
	exitInterrupted = 130
)

// command is one of the program's commands. run returns a report and an error;
// it does not print and does not exit.
type command struct {
	name, args, does string
	flags            func(*pflag.FlagSet, *options)
	run              func(context.Context, *options) (*Report, error)
}

var errInterrupted = errors.New("interrupted; nothing was changed")

// usageError is a mistake in the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

func run(argv []string, stdout, stderr io.Writer) int {
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() {
		// the environment, the flags and the interpreter are the caller's, the rights are not
		r := newReport("")
		r.fail(&patcher.RefusedError{Code: "set-uid", Path: argv[0], Message: argv[0] + " is not made to run set-uid or set-gid; nothing was changed", Hint: "chmod ug-s FILE, and run it with sudo"})
		return (&options{json: wantsJSON(argv)}).print(r, stdout, stderr)
	}
	if filepath.Base(argv[0]) == "patch" && !ours(argv[1:]) {
		return passOn(argv, stdout, stderr)
	}
	if len(argv) == 4 && argv[1] == farVerb {
		return answerFar(argv[2], argv[3], os.Stdin, stdout)
	}
	if len(argv) < 2 {
		io.WriteString(stderr, usage())
		return exitUsage
	}
	c := lookup(argv[1])
	if c == nil {
		r := newReport(argv[1])
		if strings.HasPrefix(argv[1], "-") {
			r.fail(usagef("the command comes first, its flags behind it: sgpatch COMMAND %s", argv[1]))
		} else {
			r.fail(usagef("there is no command %q", argv[1]))
		}
		return (&options{json: wantsJSON(argv)}).print(r, stdout, stderr)
	}
	o, err := parse(c, argv[2:])
	if errors.Is(err, pflag.ErrHelp) {
		io.WriteString(stdout, c.usage())
		return exitOK
	}
	if err != nil {
		r := newReport(c.name)
		r.fail(err)
		return (&options{json: wantsJSON(argv)}).print(r, stdout, stderr)
	}
	if o.fleet.many() {
		return o.runFleet(stdout, stderr)
	}
	ctx, stop := context.Background(), func() {}
	if c.writes() {
		syscall.Umask(0o022) // what it makes has the modes that it says, and others can look
	}
	if c.writes() || os.Getpid() == 1 { // the kernel's own way to end a process does not end pid 1
		// a commit is never cut short; before it, an interrupt ends the command
		ctx, stop = signal.NotifyContext(ctx, stopSignals...)
	}
	defer stop()
	return o.print(o.execute(ctx), stdout, stderr)
}

// writes says whether a command changes a host, or starts what must not outlive it.
func (c *command) writes() bool {
	return slices.Contains([]string{"apply", "revert", "preflight", "trial"}, c.name)
}

var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// execute runs the command here.
func (o *options) execute(ctx context.Context) *Report {
	r, err := o.command.run(ctx, o)
	if r == nil {
		r = newReport(o.command.name)
	}
	if err != nil && ctx.Err() != nil && len(r.Changed) == 0 && !committing(err) {
		err = errInterrupted
	}
	if err != nil {
		r.fail(err)
	}
	return r
}

// committing says that an error is of a commit or what comes with it: it may
// have left something, whoever interrupted the command meanwhile.
func committing(err error) bool {
	var (
		recov  *patcher.RecoverError
		commit *patcher.CommitError
		purge  *purgeError
		left   *leftError
	)
	return errors.As(err, &recov) || errors.As(err, &commit) || errors.As(err, &purge) || errors.As(err, &left)
}

// wantsJSON looks for --json in a line that could not be parsed.
func wantsJSON(argv []string) bool {
	if i := slices.Index(argv, "--"); i >= 0 {
		argv = argv[:i]
	}
	return slices.Contains(argv, "--json") || slices.Contains(argv, "--json=true")
}

// fail puts an error into a report: its exit code, its words and its way out.
func (r *Report) fail(err error) {
	r.Exit, r.Error = exitCode(err), err.Error()
	var re *patcher.RefusedError
	if errors.As(err, &re) {
		if re.Hint == "" {
			re.Hint = "sgpatch status"
		}
		r.Hint = re.Hint
		r.find(patcher.Finding{Code: re.Code, Severity: "error", Message: re.Message, Hint: re.Hint, Path: re.Path, Line: re.Line})
		return
	}
	r.Hint = hint(err)
	if r.Exit == exitUsage && r.Hint == "sgpatch help" && lookup(r.Command) != nil {
		r.Hint += " " + r.Command
	}
	if r.Exit != exitUsage {
		code := "error"
		if r.Exit == exitUnreached {
			code = "host"
		}
		r.find(patcher.Finding{Code: code, Severity: "error", Message: r.Error, Hint: r.Hint})
	}
}

// exitCode is the one place where an error becomes an exit code.
func exitCode(err error) int {
	var (
		use     usageError
		set     *patcher.UnknownSetError
		env     *patcher.UnknownEnvError
		recov   *patcher.RecoverError
		commit  *patcher.CommitError
		refused *patcher.RefusedError
		purge   *purgeError
		host    *remote.Error
		left    *leftError
	)
	switch {
	case errors.As(err, &left):
		return exitBroken
	case errors.As(err, &purge): // it unwraps to nothing: the revert itself was done
		if errors.Is(purge.err, context.Canceled) {
			return exitInterrupted
		}
		return exitFailed
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &host):
		return exitUnreached
	case errors.As(err, &use), errors.As(err, &set), errors.As(err, &env):
		return exitUsage
	case errors.As(err, &refused):
		return exitRefused
	case errors.As(err, &recov):
		return exitBroken
	case errors.As(err, &commit):
		return commitCode(commit)
	case refusal(err), denied(err), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return exitRefused
	}
	return exitFailed
}

func commitCode(e *patcher.CommitError) int {
	switch {
	case e.Touched && !e.Undone:
		return exitBroken
	case !e.Touched && !e.Journal && denied(e.Err):
		return exitRefused
	}
	return exitFailed
}

// denied knows the errors that mean: this cannot be done here, and nothing was.
func denied(err error) bool {
	return slices.ContainsFunc([]error{syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.EBUSY, syscall.ELOOP}, func(e error) bool { return errors.Is(err, e) })
}

// refusal knows the typed errors of looking: nothing was changed.
func refusal(err error) bool {
	var (
		busy   *patcher.BusyError
		dam    *patcher.DamagedError
		none   *install.NotFoundError
		many   *install.ManyError
		python *install.PythonError
		link   *install.LinkError
		moved  *patcher.ChangedError
		load   *loadError
	)
	return errors.As(err, &busy) || errors.As(err, &dam) || errors.As(err, &none) || errors.As(err, &many) ||
		errors.As(err, &python) || errors.As(err, &link) || errors.As(err, &moved) || errors.As(err, &load)
}

// hint is the next command to type after an error.
func hint(err error) string {
	var (
		busy *patcher.BusyError
		none *install.NotFoundError
		dam  *patcher.DamagedError
		set  *patcher.UnknownSetError
		env  *patcher.UnknownEnvError
		link *install.LinkError
		py   *install.PythonError
		load *loadError
		rec  *patcher.RecoverError
		host *remote.Error
		left *leftError
	)
	switch {
	case errors.As(err, &left):
		var refused *patcher.RefusedError
		if errors.As(left.err, &refused) && refused.Hint != "" {
			return refused.Hint
		}
		return "sgpatch status" + left.site.Flags() + "; then: sgpatch revert" + left.site.Flags()
	case errors.As(err, &host):
		return host.Hint
	case errors.As(err, &rec):
		return rec.Hint()
	case errors.Is(err, fs.ErrPermission) && !errors.As(err, &py):
		return "run it as the owner of the install, or with sudo (name --python PATH then: the venv is not active under sudo)"
	case errors.As(err, &py):
		return "name the interpreter that starts the server: --python PATH"
	case errors.As(err, &load):
		return "mend that patch set, or leave its folder out of --patches"
	case errors.As(err, &link):
		return link.Hint
	case errors.As(err, &busy):
		return "wait for the other sgpatch, or give more time: --lock-timeout 60s"
	case errors.As(err, &none):
		return "name the interpreter that starts the server: --python PATH (or the install's directory: --root DIR)"
	case errors.As(err, &dam):
		return "put the published files back (pip install --force-reinstall --no-deps sglang==VERSION) and remove that record"
	case errors.As(err, &set), errors.As(err, &env):
		return "sgpatch list"
	case errors.Is(err, syscall.ELOOP):
		return "a directory on that path is or became a link; name the real one, or run it again when nobody moves it"
	case errors.Is(err, syscall.ENOSPC):
		return "make room, then run it again"
	case errors.As(err, &usageError{}):
		return "sgpatch help"
	}
	return ""
}
