package patchset

import (
	"strings"
	"testing"
)

func TestGuideIsChecked(t *testing.T) {
	good := "[[advice]]\ntitle = \"t\"\nswitch = \"s\"\nresult = \"r\"\nsource = \"x\"\nconfidence = \"read\"\n[[overwrites]]\nfrom = \"0.5.3\"\nvariables = [\"NCCL_ALGO\"]\nwhen = \"w\"\n"
	if g, err := LoadGuide([]byte(good)); err != nil || len(g.Advice) != 1 || len(g.Overwrites) != 1 {
		t.Errorf("%+v %v", g, err)
	}
	for old, new := range map[string]string{
		"title = \"t\"": "", "switch = \"s\"": "", "result = \"r\"": "", "source = \"x\"": "", "\"read\"": "\"sure\"", "switch": "swich",
		"confidence": "link = \"usb\"\nconfidence", "when = \"w\"": "", "from = \"0.5.3\"": "", "[\"NCCL_ALGO\"]": "[]", "[[overwrites]]": "[[overwrites]", "title =": "title",
	} {
		if _, err := LoadGuide([]byte(strings.Replace(good, old, new, 1))); err == nil {
			t.Errorf("%q in place of %q", new, old)
		}
	}
}
