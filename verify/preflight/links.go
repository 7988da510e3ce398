package preflight

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"sgpatch/verify/smi"
)

// Link is how a GPU is attached, as nvidia-smi says it: generation and width of
// PCIe as they are, and as they can be. GPUs lower them when they are idle.
type Link struct {
	GPU      int    `json:"gpu"`
	Bus      string `json:"bus"`
	Gen      int    `json:"gen"`
	GenMax   int    `json:"gen_max"`
	Width    int    `json:"width"`
	WidthMax int    `json:"width_max"`
	Driver   string `json:"driver"`
	ecc      int
}

// sight is what the machine said of its GPUs before the run.
type sight struct {
	links []Link
	log   *os.File // the kernel's, from now on; nil where it may not be read
}

var columns = []string{"index", "pci.bus_id", "pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max", "driver_version", "ecc.errors.uncorrected.volatile.total"}

func look() sight {
	s := sight{links: links()}
	if log, err := os.Open("/dev/kmsg"); err == nil {
		log.Seek(0, io.SeekEnd)
		s.log = log
	}
	return s
}

// links asks nvidia-smi; without it there are none.
func links() []Link {
	out, err := smi.Ask(context.Background(), smi.Query(columns...)...)
	if err != nil {
		return nil
	}
	return readLinks(out)
}

func readLinks(out []byte) (all []Link) {
	for _, r := range smi.Rows(out, len(columns)) {
		all = append(all, Link{GPU: r.Number(0), Bus: r[1], Gen: r.Number(2), GenMax: r.Number(3), Width: r.Number(4), WidthMax: r.Number(5), Driver: r[6], ecc: r.Number(7)})
	}
	return all
}

// since returns how the GPUs are attached now, and the errors since.
func (s sight) since() (now []Link, errors []string) {
	now, errors = links(), []string{}
	for i, l := range now {
		if i < len(s.links) && l.ecc > s.links[i].ecc {
			errors = append(errors, fmt.Sprintf("GPU %d: %d uncorrected memory errors", l.GPU, l.ecc-s.links[i].ecc))
		}
	}
	if now == nil {
		now = []Link{}
	}
	if s.log == nil {
		return now, errors
	}
	defer s.log.Close()
	fd := int(s.log.Fd())
	if syscall.SetNonblock(fd, true) != nil {
		return now, errors
	}
	record := make([]byte, 8192) // one is read at a time
	for {
		n, err := syscall.Read(fd, record)
		if err == syscall.EPIPE { // older ones were written over; the rest is still there
			continue
		}
		if err != nil || n <= 0 {
			return now, errors
		}
		if i := bytes.Index(record[:n], []byte("NVRM: Xid")); i >= 0 {
			text, _, _ := strings.Cut(string(record[i:n]), "\n")
			errors = append(errors, text)
		}
	}
}
