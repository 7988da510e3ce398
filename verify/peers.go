package verify

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"sgpatch/patcher/install"
)

// peers asks the CUDA driver itself, under the visible devices of the
// environment: no torch, and no answer from SGLang's own cache, which is keyed
// by device numbers and stale after a card was changed.
const peers = `import ctypes, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as e:
    sys.exit("no CUDA driver: %s" % e)
def call(name, *args):
    rc = getattr(cuda, name)(*args)
    if rc:
        sys.exit("%s: CUDA error %d" % (name, rc))
n = ctypes.c_int()
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(n))
print("devices", n.value)
for a in range(n.value):
    for b in range(n.value):
        if a != b:
            can, da, db = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
            call("cuDeviceGet", ctypes.byref(da), a)
            call("cuDeviceGet", ctypes.byref(db), b)
            call("cuDeviceCanAccessPeer", ctypes.byref(can), da, db)
            if not can.value:
                print("no", a, b)
`

// Peers asks whether every pair of visible GPUs can reach its peer.
func Peers(ctx context.Context, in install.Install) []Finding {
	bad := func(format string, args ...any) []Finding {
		return []Finding{{Code: "p2p", Severity: "error", Message: fmt.Sprintf(format, args...), Hint: "nvidia-smi topo -p2p r"}}
	}
	if in.Python == "" {
		return bad("whether the GPUs reach their peers cannot be asked without an interpreter")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd, err := install.Command(ctx, in.Python, nil, "-I", "-S", "-B", "-c", peers)
	if err != nil {
		return bad("%v", err)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return bad("whether the GPUs reach their peers cannot be told: %s", lastLine(stderr.String()))
	}
	var pairs []string
	devices := 0
	for line := range strings.Lines(stdout.String()) {
		var a, b int
		if n, _ := fmt.Sscanf(line, "no %d %d", &a, &b); n == 2 {
			pairs = append(pairs, fmt.Sprintf("%d-%d", a, b))
		}
		fmt.Sscanf(line, "devices %d", &devices)
	}
	switch {
	case devices < 2:
		return bad("only %d GPU is visible; the gate needs more than two", devices)
	case len(pairs) > 0:
		return bad("GPU pairs that cannot reach their peer: %s", strings.Join(pairs, ", "))
	}
	return []Finding{{Code: "p2p", Severity: "note", Message: fmt.Sprintf("all %d visible GPUs reach their peers", devices)}}
}
