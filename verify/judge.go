// Package verify judges whether the sets in place would really be in force in a
// server started now: code, bytecode and environment. It writes nothing, and it
// never imports sglang or torch.
package verify

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
)

// Finding is one reason, or one thing to know.
type Finding = patcher.Finding

// Request is what is to be judged.
type Request struct {
	Site  *patcher.Site
	Sets  []string // ids
	Env   map[string]string
	Args  []string // of CMD
	Asked bool     // Env is what the interpreter has in force after start-up
	Given func(name string) (string, bool)
}

// EnvState is one variable of a set as it is in force.
type EnvState struct {
	Name, Want string
	Have       *string // nil if it is absent
	From       string  // "environment", "block", a file and line, or ""
	State      string  // "ok", "absent", "off" or "other"
}

// Verdict is what Judge found about one set.
type Verdict struct {
	View     patcher.SetView
	Env      []EnvState
	Findings []Finding
}

// Holds says whether no finding is an error.
func Holds(all []Finding) bool {
	return !slices.ContainsFunc(all, func(f Finding) bool { return f.Severity == "error" })
}

// On reads a switch as SGLang's get_bool_env_var does.
func On(value string) bool {
	v := strings.ToLower(value)
	return v == "1" || v == "true"
}

// Judge judges the sets of a request one by one. Findings that concern none of
// them alone come from Whole.
func Judge(ctx context.Context, r Request) []Verdict {
	var all []Verdict
	for _, id := range r.Sets {
		v := Verdict{View: r.Site.View(id)}
		v.code(ctx, r)
		v.environment(r)
		v.void(r)
		v.hints(r.Site)
		all = append(all, v)
	}
	return all
}

func (v *Verdict) fail(code, path, format string, args ...any) *Finding {
	v.Findings = append(v.Findings, Finding{Code: code, Severity: "error", Path: path, Message: fmt.Sprintf(format, args...)})
	return &v.Findings[len(v.Findings)-1]
}

func (v *Verdict) say(severity, code, path, format string, args ...any) {
	v.Findings = append(v.Findings, Finding{Code: code, Severity: severity, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (v *Verdict) code(ctx context.Context, r Request) {
	s := r.Site
	again := "sgpatch apply " + v.View.ID + s.Flags()
	for _, f := range v.View.Files {
		path := filepath.Join(s.In.Root, f.Path)
		switch f.State {
		case patcher.Patched:
			v.bytecode(ctx, r, f, path)
		case patcher.Pristine, patcher.Fits, patcher.Unfit:
			if v.View.Enabled {
				v.fail("pristine-again", path, "%s is the content from before the patch again", path).Hint = again
			} else if v.View.State == patcher.Partial {
				v.fail("partial", path, "%s is without the patch, and other files of %s have it", path, v.View.ID).Hint = again
			}
		case patcher.Replaced:
			v.fail("reinstalled", path, "%s is another content than the patched one; a reinstall took the patch away (release now: %s)", path, orUnknown(s.In.Release)).Hint = again
		case patcher.Edited:
			v.fail("edited", path, "%s was edited after it was patched; our hunks are whole", path).Hint = "sgpatch revert " + v.View.ID + s.Flags()
		case patcher.Damaged:
			v.fail("drift", path, "%s was edited inside our hunks after it was patched", path).Hint = "sgpatch revert " + v.View.ID + s.Flags()
		case patcher.Missing:
			if v.View.Enabled || v.View.State == patcher.Partial {
				v.fail("missing", path, "%s is gone", path).Hint = "sgpatch revert " + v.View.ID + s.Flags()
			}
		}
	}
	v.standing(r)
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// standing says so if the set as a whole is not in place.
func (v *Verdict) standing(r Request) {
	s, flags := r.Site, r.Site.Flags()
	switch v.View.State {
	case patcher.Held:
		if !v.View.Enabled && len(v.View.Files) > 0 && s.Pending == "" {
			v.say("note", "no-receipt", s.In.Root, "%s is in place in %s, but no receipt says so (an image layer, or a copied tree)", v.View.ID, s.In.Root)
		}
	case patcher.Absent:
		v.fail("absent", s.In.Root, "%s is not in place in %s", v.View.ID, s.In.Root).Hint = "sgpatch apply " + v.View.ID + flags
	case patcher.Foreign:
		path := s.In.Root
		for _, f := range slices.Backward(v.View.Files) {
			if f.State == patcher.Alien {
				path = filepath.Join(s.In.Root, f.Path)
			}
		}
		v.fail("foreign", path, "%s: the gate of %s is there, but not by sgpatch: %s", path, v.View.ID, v.View.Reason)
	case patcher.Unsupported:
		path := s.In.Root
		if i := slices.IndexFunc(v.View.Files, func(f patcher.FileView) bool { return f.State == patcher.Missing || f.State == patcher.Unfit }); i >= 0 {
			path = filepath.Join(path, filepath.FromSlash(v.View.Files[i].Path))
		}
		v.fail("unsupported", path, "%s does not fit the SGLang in %s: %s (%s)", v.View.ID, s.In.Root, v.View.Reason, path)
	case patcher.Undone, patcher.Partial, patcher.Drifted:
		if Holds(v.Findings) && (v.View.InBlock || !v.View.Enabled || len(v.View.Files) == 0) {
			v.fail(string(v.View.State), s.In.Root, "%s is %s in %s %s", v.View.ID, v.View.State, s.In.Root, v.View.Reason)
		}
	}
}

// hints gives every reason that has none of its own a next step.
func (v *Verdict) hints(s *patcher.Site) {
	for i := range v.Findings {
		if f := &v.Findings[i]; f.Severity == "error" && f.Hint == "" {
			f.Hint = "sgpatch status" + s.Flags()
		}
	}
}

// bytecode applies the interpreter's own header test to what it would run.
func (v *Verdict) bytecode(ctx context.Context, r Request, f patcher.FileView, path string) {
	in := r.Site.In
	if other := in.Answer.Shadow(path); other != "" {
		v.fail("shadowed-module", path, "%s would be imported instead of %s", other, path)
	}
	for _, pyc := range r.compiled(path) {
		use, err := install.HowUsed(pyc, path, in.Answer.Magic)
		switch {
		case err != nil:
			v.say("warning", "bytecode", pyc, "%s cannot be read: %v", pyc, err)
		case use == install.Unchecked:
			v.fail("bytecode", pyc, "%s is unchecked-hash bytecode: Python runs it without a look at %s", pyc, path).Hint = "sgpatch apply " + v.View.ID + r.Site.Flags() + " clears it"
		case use == install.Checked && in.Asked && !r.Site.Quick && patcher.Lacks(pyc, r.Site.Added(v.View, f.Path)) && !sameCode(ctx, in, pyc, path):
			v.fail("bytecode", pyc, "%s is not compiled from %s, but Python would run it", pyc, path).Hint = "remove it"
		}
	}
}

// compiled lists what this interpreter would run for a source; without an
// interpreter, what any of them would.
func (r Request) compiled(path string) []string {
	if r.Site.In.Answer.Tag != "" {
		return []string{r.Site.In.Answer.Cached(path)}
	}
	return install.Bytecode(path, r.Site.In.Answer.PycachePrefix)
}

// sameCode has the interpreter compile the source and compare.
func sameCode(ctx context.Context, in install.Install, pyc, source string) bool {
	const script = `import marshal, sys
code = marshal.loads(open(sys.argv[1], "rb").read()[16:])
want = compile(open(sys.argv[2], "rb").read(), code.co_filename, "exec", dont_inherit=True, optimize=int(sys.argv[3]))
sys.exit(0 if code == want else 9)`
	cmd, err := install.Command(ctx, in.Python, []string{pyc, source}, "-I", "-S", "-B", "-c", script, pyc, source, "0"+in.Answer.Optimize)
	if err != nil {
		return false
	}
	return cmd.Run() == nil
}

// environment judges the variables of the set.
func (v *Verdict) environment(r Request) {
	for _, want := range v.wanted(r) {
		e := EnvState{Name: want.Name, Want: want.Value, State: "ok"}
		have, ok := r.Env[want.Name]
		if ok {
			e.Have, e.From = &have, r.from(want.Name, have)
		}
		switch {
		case !ok:
			e.State = "absent"
			v.absent(r, want)
		case want.Switch && !On(have):
			e.State = "off"
			v.fail("env-off", "", "%s=%q is off (only 1 and true are on); it comes from %s", want.Name, have, e.From).Hint = "set it to 1, or unset it, where it comes from"
		case !want.Switch && have != want.Value:
			e.State = "other"
			v.fail("env-other", "", "%s is %q, not %q; it comes from %s", want.Name, have, want.Value, e.From).Hint = "unset it where it comes from, or: sgpatch apply " + v.View.ID + " --env " + want.Name + "=VALUE" + r.Site.Flags()
		}
		v.Env = append(v.Env, e)
	}
	if s := r.Site; v.View.Enabled && !v.View.NoEnv && !v.View.InBlock && s.BlockErr == nil {
		where := s.In.Site
		if where == "" {
			where = "any sitecustomize"
		}
		f := v.fail("entry-missing", s.In.Site, "the entry of %s is not in %s, the sitecustomize that this interpreter imports", v.View.ID, where)
		f.Hint = "sgpatch apply " + v.View.ID + s.Flags()
		if old := s.Receipt.Entry.Path; old != "" && old != s.In.Site && s.Receipt.Root == s.Root() {
			f.Code, f.Message = "shadowed-sitecustomize", fmt.Sprintf("%s, and not %s with our entry, is the sitecustomize that this interpreter imports", where, old)
		}
	}
	v.sitecustomize(r)
}

func (v *Verdict) sitecustomize(r Request) {
	s := r.Site
	if s.BlockErr != nil {
		v.fail("damaged-block", s.In.Site, "%s: %v", s.In.Site, s.BlockErr).Hint = "take the lines between sgpatch's markers, and the markers, out by hand; then: sgpatch apply " + v.View.ID + s.Flags()
	}
	if len(v.View.Files) > 0 && v.View.State == patcher.Absent && slices.ContainsFunc(v.Env, func(e EnvState) bool { return e.From == "block" }) {
		v.fail("code-missing", s.In.Site, "the entry of %s is in place in %s, but the code is not", v.View.ID, s.In.Site).Hint = "sgpatch apply " + v.View.ID + s.Flags() + ", or: sgpatch revert " + v.View.ID + s.Flags()
	}
}

// wanted is what the set wants in force: with --no-env only its switches count,
// wherever they come from.
func (v *Verdict) wanted(r Request) []patcher.EnvValue {
	if !v.View.NoEnv {
		return v.View.Env
	}
	return slices.DeleteFunc(slices.Clone(v.View.Env), func(e patcher.EnvValue) bool { return !e.Switch && len(v.View.Files) > 0 })
}

func (v *Verdict) absent(r Request, want patcher.EnvValue) {
	switch s := r.Site; {
	case v.View.State == patcher.Absent || v.View.State == patcher.Unsupported || v.View.State == patcher.Foreign:
	case s.In.Answer.NoSite:
		v.fail("env-dropped", "", "%s is absent: with -S no sitecustomize is imported", want.Name).Hint = "start Python without -S"
	case v.View.NoEnv:
		v.fail("env-absent", "", "%s is absent: the code is in place, but nothing sets the variable (--no-env)", want.Name).Hint = "export " + want.Name + "=1"
	case !s.In.Asked:
		v.fail("env-absent", s.In.Site, "%s is absent: %s does not set it", want.Name, s.In.Site).Hint = "sgpatch apply " + v.View.ID + s.Flags()
	default:
		v.fail("env-absent", s.In.Site, "%s is absent in this interpreter", want.Name).Hint = "sgpatch apply " + v.View.ID + s.Flags()
	}
}

// from says where a value in force comes from.
func (r Request) from(name, value string) string {
	if given, ok := r.Given(name); ok && given == value {
		return "environment"
	}
	for _, w := range r.Site.Block.Wants(r.Site.Root()) {
		if w.Name == name && w.Value == value {
			return "block"
		}
	}
	for _, h := range r.Site.ByHand([]string{name}) {
		return fmt.Sprintf("%s:%d", h.Path, h.Number)
	}
	for _, e := range r.Site.Block.Entries {
		if e.Name == name && e.Value == value {
			return "block"
		}
	}
	return "something that runs when Python starts"
}

// void looks for what makes the set void although it is in place.
func (v *Verdict) void(r Request) {
	k, ok := r.Site.Known(v.View.ID)
	if e, enabled := r.Site.Receipt.Set(v.View.ID); !ok && enabled {
		k.Void, k.Shadows = e.Void, e.Shadows
	}
	for _, e := range k.Void.Env {
		for _, name := range e.Names {
			if value, ok := r.Env[name]; ok && hasOption(value, e.Option) {
				v.fail("void", "", "%s=%s makes %s void: %s", name, value, v.View.ID, e.Reason).Hint = "take it out of " + name
			}
		}
	}
	for _, a := range k.Void.Args {
		for _, got := range r.Args {
			if isOption(got, a) {
				v.fail("void", "", "%s in the command makes %s void", got, v.View.ID).Hint = "leave it out of the command"
			}
		}
	}
	for _, sh := range k.Shadows {
		if value, ok := r.Env[sh.Name]; ok && On(value) {
			v.say("warning", "shadows", "", "%s=%s is set as well: %s", sh.Name, value, sh.Reason)
		}
	}
}

// hasOption looks for "name:value" in a list separated by commas.
func hasOption(list, option string) bool {
	for _, part := range strings.Split(list, ",") {
		if strings.EqualFold(strings.Join(strings.Fields(part), ""), option) {
			return true
		}
	}
	return false
}

// isOption knows that argparse takes a long option's beginning, and "=value"
// behind it. The shortest that is unambiguous for SGLang is "--disable-cus".
func isOption(arg, option string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return name == option || (len(name) >= len("--disable-cus") && strings.HasPrefix(option, name))
}

// TrialVariable tells commands that a trial starts that they are a part of it.
const TrialVariable = "SGPATCH_TRIAL"

// Whole judges what concerns the install and none of its sets alone.
func Whole(s *patcher.Site) []Finding {
	var all []Finding
	if s.Pending != "" {
		all = append(all, Finding{Code: "interrupted", Severity: "error", Path: filepath.Join(s.In.Root, ".sgpatch"), Message: "a command (" + s.Pending + ") was interrupted here; the next one that writes puts it right", Hint: "sgpatch apply" + s.Flags() + ", or: sgpatch revert" + s.Flags()})
	}
	if s.Receipt.Trial != "" && os.Getenv(TrialVariable) == "" {
		all = append(all, Finding{Code: "trial", Severity: "error", Path: s.In.Root, Message: "a trial is not at its end, or was killed: " + s.Receipt.Trial, Hint: "wait for it, or: sgpatch revert" + s.Flags()})
	}
	if s.In.Asked && s.In.Gone {
		f := Finding{Code: "not-imported", Severity: "error", Path: s.In.Root, Message: "this interpreter imports no sglang from where it was started", Hint: "start it from another directory, or: sgpatch revert --all" + s.Flags()}
		if l := s.In.Answer.Locations; len(l) > 0 {
			f.Path, f.Message = l[0], fmt.Sprintf("from where it was started, this interpreter takes %s for sglang, a directory without __init__.py, and not what is in %s", l[0], s.In.Root)
		}
		all = append(all, f)
	}
	if l := s.In.Answer.Locations; s.In.Asked && !s.In.Gone && len(l) > 0 && !sameDir(filepath.Dir(l[0]), s.In.Root) {
		all = append(all, Finding{Code: "copies", Severity: "error", Path: l[0], Message: fmt.Sprintf("this interpreter imports %s, and not the sglang in %s", l[0], s.In.Root), Hint: "take the other one off its path, or judge that one: sgpatch verify --python " + s.In.Python})
		return all
	}
	for _, c := range s.In.Answer.Copies {
		if c == s.In.Root || sameDir(c, s.In.Root) {
			continue
		}
		f := Finding{Code: "copies", Severity: "warning", Path: c, Message: fmt.Sprintf("%s has another sglang, which %s shadows", c, s.In.Root)}
		if st, err := os.Lstat(filepath.Join(c, ".sgpatch")); err == nil && st.IsDir() && len(s.Receipt.Sets) == 0 {
			f.Severity, f.Message = "error", fmt.Sprintf("%s, and not the patched copy in %s, is what this interpreter imports here", s.In.Root, c)
		}
		all = append(all, f)
	}
	for _, p := range s.In.Answer.Problems {
		all = append(all, Finding{Code: "python", Severity: "warning", Message: p})
	}
	if a := s.In.Answer; a.Site != "" && !a.SiteLoaded && !a.NoSite {
		all = append(all, Finding{Code: "sitecustomize-raises", Severity: "note", Path: a.Site, Message: a.Site + " did not run to its end (it raised an exception, or removed itself)"})
	}
	return all
}

func sameDir(a, b string) bool {
	x, errx := filepath.EvalSymlinks(a)
	y, erry := filepath.EvalSymlinks(b)
	return errx == nil && erry == nil && x == y
}
