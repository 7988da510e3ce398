package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// marker is how this program knows itself in a file, under any name and version.
const marker = "sgpatch program marker 9d1c0a5e-6f37-4d0e-9a55-0c4f2f9f2f0b"

// guard is set while a command line is handed on, so that a script which calls
// us by the name patch ends in an error and not in an endless exec.
const guard = "SGPATCH_PASSED_ON"

// ours says whether a line given to the name patch is for this program.
func ours(args []string) bool {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return false
	}
	return lookup(args[0]) != nil || reserved(args[0])
}

// passOn execs the next patch on PATH that is not us.
func passOn(argv []string, stdout, stderr io.Writer) int {
	if os.Getenv(guard) != "" {
		fmt.Fprintln(stderr, "sgpatch: the next patch on PATH called sgpatch again; remove that script, or call GNU patch by its full path")
		return exitRefused
	}
	next := nextPatch()
	if next == "" {
		return noOther(argv, stdout, stderr)
	}
	err := syscall.Exec(next, argv, append(os.Environ(), guard+"=1"))
	fmt.Fprintf(stderr, "sgpatch: %s cannot be started: %v\n", next, err)
	return exitRefused
}

func noOther(argv []string, stdout, stderr io.Writer) int {
	if len(argv) > 1 {
		switch argv[1] {
		case "--help", "-h":
			io.WriteString(stdout, usage())
			return exitOK
		case "--version", "-v":
			io.WriteString(stdout, versionText())
			return exitOK
		}
	}
	fmt.Fprintln(stderr, "sgpatch: this is sgpatch under the name patch, and there is no other patch on PATH\n\nInstall GNU patch (apt-get install patch), or see: sgpatch help")
	return exitRefused
}

func nextPatch() string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if dir == "" {
			dir = "."
		}
		path := filepath.Join(dir, "patch")
		if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
			continue
		}
		if !isUs(path) {
			return path
		}
	}
	return ""
}

// isUs looks for the marker in a file, a piece at a time.
func isUs(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	const piece = 1 << 20
	buf := make([]byte, 0, piece+len(marker))
	for {
		n, err := io.ReadFull(f, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if bytes.Contains(buf, []byte(marker)) {
			return true
		}
		if err != nil {
			return false
		}
		keep := copy(buf, buf[len(buf)-len(marker):])
		buf = buf[:keep]
	}
}
