package remote

import "strings"

// The scripts stand in single quotes on one line and have no quote, backslash,
// newline or exclamation mark in them, so that any login shell (csh and fish,
// too) hands them to /bin/sh as they are. Their arguments are a nonce, a digest
// and names of machines; nothing a user wrote comes near a shell.

// prelude: $1 nonce, $2 digest, $3 kinds of machine. folder PATH demands that
// PATH is no link, private, and belongs to this user. A program that is started
// costs a host a millisecond or two, and there may be thousands of hosts.
const prelude = `umask 077; set -f; n=$1; d=$2; ` +
	`say() { echo "sgpatch-$n $*"; exit 0; }; ` +
	`m=$(uname -sm); m=${m% *}/${m#* }; case " $3 " in *" $m "*) ;; *) say other $m;; esac; ` +
	`b=${XDG_CACHE_HOME:-$HOME/.cache}; case $b in /*) ;; *) say refuse there is no home directory to keep the program in;; esac; ` +
	`s=$b/sgpatch; f=$s/$d; x=$f/sgpatch; ` +
	`folder() { case $(ls -ldn "$1") in drwx--[-S]---*) [ -O "$1" ];; *) false;; esac || say refuse "$1 is not a private folder of this user: chmod 700 it, or remove it"; }; `

// startScript: $4 is sudo to become root, $5 the program's own argument, $6 how it
// proves to be what was meant. One ls
// looks at both folders and the program; if that is not as it should be, each
// is looked at to say what is the matter. Whoever is no owner of the first
// cannot have made the others.
const startScript = prelude +
	`[ -e "$x" ] || say missing $(command -v gzip >/dev/null && echo gzip); ` +
	`case $(ls -ldn "$s" "$f" "$x") in drwx--[-S]---*" $s"?drwx--[-S]---*" $f"?-rwx------*" $x") [ -O "$s" ] && [ -O "$f" ] && [ -O "$x" ];; *) false;; esac || ` +
	`{ folder "$s"; folder "$f"; say refuse "$x is not a private file of this user: remove it"; }; ` +
	`if [ "$4" = sudo ] && [ "$(id -u)" -ne 0 ]; then exec sudo -n -- "$x" "$5" "$n" "$6"; fi; exec "$x" "$5" "$n" "$6"`

// uploadScript: $4 is the size, $5 gzip if it comes packed. What arrived is given
// its name only when it is complete; a part that a cut connection left is never
// started. Versions that were brought a month ago and more go.
const uploadScript = prelude +
	`mkdir -p "$b" || say refuse "$b cannot be made"; mkdir "$s" 2>/dev/null; folder "$s"; mkdir "$f" 2>/dev/null; folder "$f"; ` +
	`t=$f/.part-$n; unpack() { if [ "$1" = gzip ]; then gzip -dc; else cat; fi; }; ` +
	`(set -C; unpack "$5" >"$t") || { rm -f "$t"; say refuse "$t cannot be written"; }; chmod 700 "$t"; sync -d "$t" 2>/dev/null; ` +
	`g=$d; if command -v sha256sum >/dev/null; then g=$(sha256sum <"$t"); fi; ` +
	`[ "$(wc -c <"$t")" -eq "$4" ] || g=torn; ` +
	`case $g in $d*) ;; *) rm -f "$t"; say torn;; esac; mv -f "$t" "$x" || say refuse "$x cannot be written"; ` +
	`find "$s" -mindepth 1 -maxdepth 1 -type d -mtime +30 -exec rm -rf {} + 2>/dev/null; say stored`

// shellLine is a script and its arguments as one command line.
func shellLine(script string, args ...string) string {
	words := []string{"exec", "/bin/sh", "-c", quote(script), "sgpatch"}
	for _, a := range args {
		words = append(words, quote(a))
	}
	return strings.Join(words, " ")
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
