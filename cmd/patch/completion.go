package main

import (
	"context"
	"strings"

	"github.com/spf13/pflag"
)

// completionCommand prints scripts made from the command table, so that they
// cannot name a flag that does not exist.
func completionCommand(_ context.Context, o *options) (*Report, error) {
	r := newReport("completion")
	if len(o.args) != 1 {
		return r, usagef("completion takes the name of a shell: bash, zsh or fish")
	}
	switch o.args[0] {
	case "bash":
		r.text = bashCompletion()
	case "zsh":
		r.text = "#compdef sgpatch\nautoload -U bashcompinit && bashcompinit\n" + bashCompletion()
	case "fish":
		r.text = fishCompletion()
	default:
		return r, usagef("completion %s: bash, zsh or fish", o.args[0])
	}
	return r, nil
}

func words(c *command) string {
	var all []string
	flagSet(c, &options{}).VisitAll(func(f *pflag.Flag) { all = append(all, "--"+f.Name) })
	return strings.Join(all, " ")
}

// sets are the ids that a command's arguments may be. Those of --patches are not
// known here.
func sets(c *command) string {
	var all []string
	if known, err := shipped(); err == nil && strings.Contains(c.args, "SET") {
		for _, k := range known {
			all = append(all, k.ID)
		}
	}
	return strings.Join(all, " ")
}

func bashCompletion() string {
	var names []string
	var cases strings.Builder
	for _, c := range commands() {
		names = append(names, c.name)
		cases.WriteString("    " + c.name + ") words=\"" + words(c) + "\" sets=\"" + sets(c) + "\" ;;\n")
	}
	return `_sgpatch() {
  local words sets cur=${COMP_WORDS[COMP_CWORD]}
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "` + strings.Join(names, " ") + `" -- "$cur")); return
  fi
  case ${COMP_WORDS[1]} in
` + cases.String() + `  esac
  case $cur in
    -*) COMPREPLY=($(compgen -W "$words" -- "$cur")) ;;
    *) COMPREPLY=($(compgen -W "$sets" -- "$cur"; compgen -f -- "$cur")) ;;
  esac
}
complete -F _sgpatch sgpatch
`
}

func fishCompletion() string {
	var b strings.Builder
	for _, c := range commands() {
		b.WriteString("complete -c sgpatch -f -n __fish_use_subcommand -a " + c.name + " -d '" + strings.ReplaceAll(c.does, "'", "") + "'\n")
		if ids := sets(c); ids != "" {
			b.WriteString("complete -c sgpatch -n '__fish_seen_subcommand_from " + c.name + "' -a '" + ids + "'\n")
		}
		flagSet(c, &options{}).VisitAll(func(f *pflag.Flag) {
			b.WriteString("complete -c sgpatch -n '__fish_seen_subcommand_from " + c.name + "' -l " + f.Name + "\n")
		})
	}
	return b.String()
}
