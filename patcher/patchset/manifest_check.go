package patchset

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// checkSet checks what the manifest says, but for the environment entries.
func checkSet(s Set) error {
	if !isID(s.ID) {
		return bad("the id %s is not lower-case letters, digits and dashes", clip([]byte(s.ID)))
	}
	if !isVersion(s.Version) {
		return bad("the version %s is not letters, digits, dots, dashes", clip([]byte(s.Version)))
	}
	if s.Title != "" && badText(s.Title) {
		return bad("the title is longer than %d bytes or has control characters", maxText)
	}
	if len(s.Conflicts) > maxConflicts {
		return bad("more than %d conflicts", maxConflicts)
	}
	for i, id := range s.Conflicts {
		if !isID(id) || id == s.ID || slices.Contains(s.Conflicts[:i], id) {
			return bad("conflicts: %s is not the id of another set, or is there twice", clip([]byte(id)))
		}
	}
	return cmp.Or(checkShadows(s.Shadows), checkVoid(s.Void),
		checkSpans("unsupported", s.Unsupported), checkSpans("superseded", s.Superseded), checkSpans("note", s.Notes),
		checkResults(s.Results))
}

const (
	maxText  = 4096 // bytes of a text for people
	maxValue = 4096 // bytes of a variable's value

	maxConflicts = 256 // each is compared with those before it
)

func checkEnv(entries []manifestEnv) error {
	seen := map[string]bool{}
	for _, e := range entries {
		name := clip([]byte(e.Name))
		switch {
		case !isEnvName(e.Name):
			return bad("env: %s is not the name of a variable", name)
		case hijacks(e.Name):
			return bad("env: %s changes which code other programs run; a set may not set it", name)
		case seen[e.Name]:
			return bad("env: %s is there twice", name)
		case e.Optional && e.Value != nil:
			return bad("env: %s is optional, so it has no value", name)
		case !e.Optional && e.Value == nil:
			return bad("env: %s has no value", name)
		case e.Value != nil && (len(*e.Value) > maxValue || strings.Contains(*e.Value, "\x00")):
			return bad("env: the value of %s is longer than %d bytes or has a NUL", name, maxValue)
		case e.Switch && e.Value != nil && !isSwitch(*e.Value):
			return bad("env: %s is a switch, so its value is 1, true, 0 or false", name)
		}
		seen[e.Name] = true
	}
	return nil
}

func isSwitch(value string) bool {
	return slices.Contains([]string{"1", "0", "true", "false"}, strings.ToLower(value))
}

// hijackers are variables that choose code, libraries, or where programs send
// their requests; a set of settings has no business with them. A name in lower
// case is one to programs that fold the case.
var hijackers = []string{
	"PATH", "ENV", "IFS", "CDPATH", "SHELL", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND",
	"HOME", "TMPDIR", "EDITOR", "VISUAL", "PAGER", "VIRTUAL_ENV", "CONDA_PREFIX",
	"GCONV_PATH", "LOCPATH", "NLSPATH", "HOSTALIASES", "RES_OPTIONS", "GLIBC_TUNABLES", "MALLOC_CONF",
	"PERL5LIB", "PERL5OPT", "PERL5DB", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH", "JAVA_TOOL_OPTIONS", "CLASSPATH",
	"CC", "CXX", "CUDAHOSTCXX", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS",
	"CUDA_INJECTION64_PATH", "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE",
	"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES",
}

var hijackerFamilies = []string{"LD_", "DYLD_", "PYTHON", "BASH_", "GIT_", "PIP_", "UV_", "SSH_", "SGPATCH_"}

func hijacks(name string) bool {
	name = strings.ToUpper(name)
	return slices.Contains(hijackers, name) ||
		slices.ContainsFunc(hijackerFamilies, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func checkShadows(shadows []EnvShadow) error {
	for _, e := range shadows {
		if !isEnvName(e.Name) || badText(e.Reason) {
			return bad("shadow: %s needs the name of a variable and a reason", clip([]byte(e.Name)))
		}
	}
	return nil
}

func checkVoid(v Void) error {
	for _, a := range v.Args {
		if !strings.HasPrefix(a, "-") || badText(a) || strings.ContainsAny(a, " \t\n") {
			return bad("void: %s is not an option of a command", clip([]byte(a)))
		}
	}
	for _, e := range v.Env {
		if len(e.Names) == 0 || badText(e.Option) || badText(e.Reason) {
			return bad("void.env: %s needs names, an option and a reason", clip([]byte(e.Option)))
		}
		for _, name := range e.Names {
			if !isEnvName(name) {
				return bad("void.env: %s is not the name of a variable", clip([]byte(name)))
			}
		}
	}
	return nil
}

func checkSpans(key string, spans []Span) error {
	for _, s := range spans {
		for _, end := range []string{s.From, s.To} {
			if end != "" && !isRelease(end) {
				return bad("%s: %s is not a release", key, clip([]byte(end)))
			}
		}
		if s.From != "" && s.To != "" && CompareReleases(s.From, s.To) > 0 {
			return bad("%s: %s comes after %s", key, s.From, s.To)
		}
		if badText(s.Text) {
			return bad("%s: no text, or one that is longer than %d bytes or has control characters", key, maxText)
		}
	}
	return nil
}

func checkResults(results []Result) error {
	for _, r := range results {
		if !slices.Contains([]string{"better", "worse", "mixed"}, r.Outcome) {
			return bad("result: the outcome %s is not better, worse or mixed", clip([]byte(r.Outcome)))
		}
		if badText(r.Hardware) || badText(r.Text) || badText(r.Source) {
			return bad("result: hardware, text and source are texts up to %d bytes without control characters", maxText)
		}
	}
	return nil
}

// badText reports whether a text is missing, too long, or could do something
// to the terminal that it is printed on.
func badText(s string) bool {
	return s == "" || len(s) > maxText ||
		strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' })
}

const lowerDigits = "abcdefghijklmnopqrstuvwxyz0123456789"

func isID(s string) bool {
	return 0 < len(s) && len(s) <= 64 && s[0] != '-' && strings.Trim(s, lowerDigits+"-") == ""
}

// isVersion holds for versions, releases and the names of variants: what can
// stand in a path, a table and a message as it is.
func isVersion(s string) bool {
	return 0 < len(s) && len(s) <= 64 && s[0] != '.' && s[0] != '-' &&
		strings.Trim(strings.ToLower(s), lowerDigits+"._+-") == ""
}

func isEnvName(s string) bool {
	return 0 < len(s) && len(s) <= 128 && !isDigit(s[0]) &&
		strings.Trim(strings.ToLower(s), lowerDigits+"_") == ""
}
