package doctor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"sgpatch/patcher"
	"sgpatch/patcher/install"
	"sgpatch/patcher/patchset"
	"sgpatch/patches"
)

// What nvidia-smi 580 printed on two H200s, and the same with PCIe between.
const (
	nvlinked = "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \tNV18\t0-31\t0\t\tN/A\nGPU1\tNV18\t X \t0-31\t0\t\tN/A\n\nLegend:\n\n  X    = Self\n"
	reaching = " \t\x1b[4mGPU0\tGPU1\t\x1b[0m\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"
)

var query = "--query-gpu=" + strings.Join(columns, ",")

// machine is a host without an install, to be changed by each test.
type machine struct {
	fs   fstest.MapFS
	smi  map[string]string
	fail error
}

func healthy() *machine {
	return &machine{
		fs: fstest.MapFS{
			"proc/stat":                                            {Data: []byte("cpu 1 2\nbtime 1764000000\n")},
			"sys/kernel/iommu_groups/0/type":                       {Data: []byte("identity\n")},
			"sys/bus/pci/devices/0000:00:06.0/resource":            {Data: []byte("0x0000000000001000 0x0000000000001fff 0x0000000000040200\n0x0000004000000000 0x0000007fffffffff 0x000000000014220c\n")},
			"root/.cache/sglang/gpu_p2p_access_cache_for_0,1.json": {Data: []byte(`{"0->1": true}`), ModTime: time.Unix(1764000500, 0)},
		},
		smi: map[string]string{
			query:         "0, NVIDIA H200, 9.0, 00000000:00:06.0, 16, 16\n1, NVIDIA H200, 9.0, 00000000:00:07.0, 16, 16\n",
			"topo -m":     nvlinked,
			"topo -p2p r": reaching,
		},
	}
}

func (m *machine) subject() Subject {
	return Subject{FS: m.fs, Home: "/root", SMI: func(_ context.Context, args ...string) ([]byte, error) {
		if m.fail != nil {
			return nil, m.fail
		}
		text, ok := m.smi[strings.TrimSuffix(strings.Join(args, " "), " --format=csv,noheader,nounits")]
		if !ok {
			return nil, fmt.Errorf("nvidia-smi %s", args)
		}
		return []byte(text), nil
	}}
}

// want demands these rows, as "state name: a part of the message", and no others
// but ok.
func want(t *testing.T, all []Check, rows ...string) {
	t.Helper()
	var got []string
	for _, c := range all {
		if c.State != OK {
			got = append(got, c.State+" "+c.Name+": "+c.Message)
		}
	}
	for i, row := range rows {
		if i >= len(got) || !strings.HasPrefix(got[i], strings.SplitAfter(row, ": ")[0]) || !strings.Contains(got[i], strings.SplitN(row, ": ", 2)[1]) {
			t.Errorf("%q is not in %q", row, got)
			return
		}
	}
	if len(got) != len(rows) {
		t.Errorf("%q, want %q", got, rows)
	}
}

func TestMachine(t *testing.T) {
	linked := "note GPUs: linked by NVLink"
	for name, c := range map[string]struct {
		spoil func(*machine)
		rows  []string
	}{
		"healthy":       {func(*machine) {}, []string{linked}},
		"no nvidia-smi": {func(m *machine) { m.fail = errors.New("not found") }, []string{"warn GPUs: not found"}},
		"no GPU":        {func(m *machine) { m.smi[query] = "" }, []string{"warn GPUs: none"}},
		"garbage":       {func(m *machine) { m.smi[query] = "\x00, ,\n,,,,,,,\n" }, []string{"warn GPUs: none"}},
		"few lanes": {func(m *machine) {
			m.smi[query] = strings.Replace(m.smi[query], "16, 16\n1", "8, 16\n1", 1)
		}, []string{linked, "warn link: GPU 0 (00000000:00:06.0) has 8 of 16 PCIe lanes"}},
		"small window": {func(m *machine) {
			m.fs["sys/bus/pci/devices/0000:00:06.0/resource"] = &fstest.MapFile{Data: []byte("0x0000004000000000 0x000000400fffffff 0x000000000014220c\n")}
		}, []string{linked, "warn link: a window of 256 MiB"}},
		"pcie":     {func(m *machine) { m.smi["topo -m"] = strings.ReplaceAll(nvlinked, "NV18", "NODE") }, []string{"note GPUs: more than two"}},
		"no topo":  {func(m *machine) { delete(m.smi, "topo -m") }, []string{"note GPUs: more than two"}},
		"no peers": {func(m *machine) { m.smi["topo -p2p r"] = strings.Replace(reaching, "X\tOK", "X\tCNS", 1) }, []string{linked, "fail peers: GPU0-GPU1 (CNS)"}},
		"iommu":    {func(m *machine) { m.fs["sys/kernel/iommu_groups/1/type"] = &fstest.MapFile{Data: []byte("DMA-FQ\n")} }, []string{linked, "warn IOMMU: translated"}},
		"acs": {func(m *machine) {
			m.fs["sys/bus/pci/devices/0000:00:01.0/config"] = &fstest.MapFile{Data: bridge(1<<2 | 1<<4)}
		}, []string{linked, "warn ACS: 0000:00:01.0"}},
		"acs off": {func(m *machine) {
			m.fs["sys/bus/pci/devices/0000:00:01.0/config"] = &fstest.MapFile{Data: bridge(1 << 0)}
		}, []string{linked}},
		"acs of no bridge": {func(m *machine) {
			space := bridge(1 << 2)
			space[11] = 3
			m.fs["sys/bus/pci/devices/0000:00:06.0/config"] = &fstest.MapFile{Data: space}
		}, []string{linked}},
		"acs torn": {func(m *machine) {
			m.fs["sys/bus/pci/devices/0000:00:01.0/config"] = &fstest.MapFile{Data: bridge(1 << 2)[:0x152]}
		}, []string{linked}},
		"old cache": {func(m *machine) {
			m.fs["root/.cache/sglang/gpu_p2p_access_cache_for_0,1.json"].ModTime = time.Unix(1763000000, 0)
		}, []string{"warn peer cache: before this machine was started", linked}},
		"bad cache": {func(m *machine) {
			m.fs["root/.cache/sglang/gpu_p2p_access_cache_for_0,1.json"].Data = []byte(`{"0->1": false}`)
		}, []string{"warn peer cache: do not reach each other", linked}},
	} {
		t.Run(name, func(t *testing.T) {
			m := healthy()
			c.spoil(m)
			want(t, Examine(t.Context(), m.subject()), c.rows...)
		})
	}
}

// bridge is the configuration space of a PCIe bridge: another capability first,
// then ACS with this control word.
func bridge(control uint16) []byte {
	space := make([]byte, 4096)
	space[10], space[11] = 0x04, 0x06
	binary.LittleEndian.PutUint32(space[0x100:], 0x150<<20|1<<16|0x0001)
	binary.LittleEndian.PutUint32(space[0x150:], 0x100<<20|1<<16|0x000d) // and back: a circle
	binary.LittleEndian.PutUint16(space[0x156:], control)
	return space
}

func TestTopology(t *testing.T) {
	three := "\tGPU0\tGPU1\tGPU2\tNIC0\nGPU0\t X \tNV4\tSYS\tNODE\nGPU1\tNV4\t X \tSYS\tNODE\nGPU2\tSYS\tSYS\t X \tNODE\nNIC0\tNODE\tNODE\tNODE\t X\n"
	for text, want := range map[string]string{three: "pcie", strings.ReplaceAll(three, "SYS", "NV4"): "nvlink", "": "", "No devices were found\n": ""} {
		if got := linkOf([]byte(text), 3); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// TestAdvice: what fits the release and the GPUs is shown, and with All the rest
// with its reason.
func TestAdvice(t *testing.T) {
	guide, err := patchset.LoadGuide(patches.Advice)
	if err != nil {
		t.Fatal(err)
	}
	titles := func(release, capability, link string, all bool) string {
		s := Subject{Guide: guide, All: all, facts: &facts{link: link}}
		if capability != "" {
			s.facts.capabilities = []string{capability}
		}
		if release != "" {
			s.Site = &patcher.Site{In: install.Install{Release: release}}
		}
		var b strings.Builder
		for _, c := range advice(t.Context(), &s) {
			if c.State != Note || c.Hint == "" {
				t.Errorf("%+v", c)
			}
			b.WriteString(c.Message + "\n")
		}
		return b.String()
	}
	six := titles("0.5.22", "12.0", "pcie", false)
	for part, has := range map[string]bool{"PCIe IPC": true, "few users": true, "own custom all-reduce": true, "fusion": false, "symmetric": false, "to-all": false, "CUDA 13": false} {
		if strings.Contains(six, part) != has {
			t.Errorf("%s: %v in %s", part, !has, six)
		}
	}
	if old := titles("0.5.9", "12.0", "pcie", false); strings.Contains(old, "PCIe IPC") || !strings.Contains(old, "CUDA 13") {
		t.Error(old)
	}
	if h := titles("0.5.15", "9.0", "nvlink", false); strings.Contains(h, "few users") || !strings.Contains(h, "fusion") {
		t.Error(h)
	}
	if everything := titles("0.5.9", "12.0", "pcie", true); strings.Count(everything, "\n") != len(guide.Advice) || !strings.Contains(everything, "(not here: not for SGLang 0.5.9)") || !strings.Contains(everything, "(not here: for GPUs linked by NVLink)") {
		t.Error(everything)
	}
	if unknown := titles("", "", "", false); strings.Count(unknown, "\n") != len(guide.Advice) {
		t.Error(unknown)
	}
}

// TestServers: who was started before the last change is to be restarted.
func TestServers(t *testing.T) {
	boot := time.Unix(1764000000, 0)
	stat := func(seconds int) string {
		return fmt.Sprintf("7 (a) b) S%s %d 0\n", strings.Repeat(" 1", 18), seconds*ticks)
	}
	files := fstest.MapFS{"proc/stat": {Data: []byte("btime 1764000000\n")}}
	add := func(pid, cmdline string, seconds int, env string) {
		files["proc/"+pid+"/cmdline"] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(cmdline, " ", "\x00") + "\x00")}
		files["proc/"+pid+"/stat"] = &fstest.MapFile{Data: []byte(stat(seconds))}
		if env != "" {
			files["proc/"+pid+"/environ"] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(env, " ", "\x00"))}
		}
	}
	add("11", "python3 -m sglang.launch_server --tp 8", 100, "A=1 B")
	add("12", "sglang::scheduler", 5000, "SGLANG_FORCE_CUSTOM_AR_PCIE=1")
	add("13", "/opt/venv/bin/python3 /opt/venv/bin/sglang serve", 5000, "")
	add("14", "grep sglang.launch_server", 5000, "X=1")
	add("15", "vi sglang.py", 5000, "X=1")
	root := t.TempDir()
	if err := os.MkdirAll(root+"/sglang", 0o755); err != nil {
		t.Fatal(err)
	}
	site, err := patcher.Open(install.Install{Root: root}, nil)
	if err != nil {
		t.Fatal(err)
	}
	site.Receipt.Last.Command, site.Receipt.Last.Time = "apply", boot.Add(1000*time.Second)
	all := servers(t.Context(), &Subject{Site: site, FS: files, facts: &facts{}})
	if len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	want(t, all, "warn server 11: before the last apply here", "note server 13: may not be read")
	if all[0].Hint != "restart it" || !strings.Contains(all[1].Message, boot.Add(5000*time.Second).UTC().Format("15:04:05")) {
		t.Errorf("%+v", all)
	}
	delete(files, "proc/stat")
	for _, c := range servers(t.Context(), &Subject{Site: site, FS: files, facts: &facts{}}) {
		if c.State != Note {
			t.Errorf("without the time of the machine's start: %+v", c)
		}
	}
	if got := servers(t.Context(), &Subject{Site: site, FS: fstest.MapFS{}, facts: &facts{}}); got != nil {
		t.Errorf("%+v", got)
	}
}

// TestRealHost: it stands whatever this machine has.
func TestRealHost(t *testing.T) {
	s := Subject{FS: os.DirFS("/"), Home: t.TempDir(), SMI: func(context.Context, ...string) ([]byte, error) { return nil, fs.ErrNotExist }}
	if all := Examine(t.Context(), s); len(all) == 0 || !Well(all) {
		t.Errorf("%+v", all)
	}
	site, err := patcher.Open(install.Install{Root: t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range servers(t.Context(), &Subject{Site: site, FS: os.DirFS("/"), facts: &facts{}}) {
		if c.Name == fmt.Sprintf("server %d", os.Getpid()) {
			t.Errorf("%+v", c)
		}
	}
}
