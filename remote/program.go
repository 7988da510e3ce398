package remote

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// program is one build of this program.
type program struct {
	data     []byte
	digest   string        // SHA-256
	sum      string        // CRC-32C
	machines string        // what uname says where it runs: "Linux/x86_64 Linux/amd64"
	packed   func() []byte // by gzip
}

// pack takes less time than sending what it saves, even on a local network.
func pack(data []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // neither fails on a buffer
	z.Write(data)
	z.Close()
	return b.Bytes()
}

var (
	systems   = map[string]string{"linux": "Linux", "darwin": "Darwin", "freebsd": "FreeBSD"}
	processor = map[string][]string{"amd64": {"x86_64", "amd64"}, "arm64": {"aarch64", "arm64"}}
)

func machines(system, arch string) []string {
	var all []string
	for _, p := range append(processor[arch], arch) {
		if m := systems[system] + "/" + p; !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}

// own is the program that runs, as it was started: its file may have been
// replaced meanwhile.
var own = sync.OnceValues(func() (*program, error) {
	path, err := ownPath()
	if err != nil {
		return nil, err
	}
	return readProgram(path, machines(runtime.GOOS, runtime.GOARCH))
})

func ownPath() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

func readProgram(path string, machines []string) (*program, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	packed := sync.OnceValue(func() []byte { return pack(data) })
	return &program{data, digestOf(sha256.New(), data), digestOf(newSum(), data), strings.Join(machines, " "), packed}, nil
}

func digestOf(h hash.Hash, data []byte) string {
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// newSum makes its tables when it is called, and not at every start.
func newSum() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }

// How a program proves that it is the one that was meant. The name of its folder
// is the SHA-256 of what was brought there. Proven by it is a program that has
// just arrived; later a sum tells a damaged file, at a tenth of the cost.
const (
	bySHA256 = "sha256"
	bySum    = "crc32c"
)

// Proof is what the program that runs says of its own file, by the way that the
// caller asked for.
func Proof(how string) (string, error) {
	path, err := ownPath()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := newSum()
	if how == bySHA256 {
		sum = sha256.New()
	}
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// sibling is the release binary for another kind of machine, which lies beside
// this one: sgpatch-linux-arm64.
func sibling(p *program, machine string) (*program, error) {
	for system := range systems {
		for arch := range processor {
			kinds := machines(system, arch)
			if !slices.Contains(kinds, machine) {
				continue
			}
			if strings.Contains(p.machines, machine) {
				return nil, fmt.Errorf("%s is refused by itself", machine)
			}
			exe, err := os.Executable()
			if err != nil {
				return nil, err
			}
			name := "sgpatch-" + system + "-" + arch
			path := filepath.Join(filepath.Dir(exe), name)
			other, err := readProgram(path, kinds)
			if os.IsNotExist(err) {
				return nil, hint("put "+name+" of this very version into "+filepath.Dir(exe), "it is %s, this program is for %s/%s, and there is no %s", machine, runtime.GOOS, runtime.GOARCH, path)
			}
			return other, err
		}
	}
	return nil, fmt.Errorf("it is %s: there is no sgpatch for that", machine)
}
