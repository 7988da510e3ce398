package patchset

import (
	"cmp"
	"strings"
)

// CompareReleases orders releases as pip does: 0.5.9.dev1 < 0.5.9rc1 < 0.5.9 <
// 0.5.9.post1 < 0.5.10, and 0.5 is 0.5.0. Text that is no release comes before
// all that are. What stands behind a "+" is compared as text.
func CompareReleases(a, b string) int {
	x, okX := parseRelease(a)
	y, okY := parseRelease(b)
	if !okX || !okY {
		return cmp.Or(cmp.Compare(boolInt(okX), boolInt(okY)), strings.Compare(a, b))
	}
	return x.compare(y)
}

// release is a version by PEP 440, without an epoch. Numbers are strings of
// digits without leading zeros, so that none is too large.
type release struct {
	numbers []string
	stage   string // "a", "b", "rc" with pre; "" for none
	pre     string
	post    string // "" for none
	dev     string // "" for none
	local   string
}

func isRelease(s string) bool {
	_, ok := parseRelease(s)
	return ok
}

// stages are the spellings of the parts behind the numbers; longer ones first.
var stages = []struct{ spelt, means string }{
	{"alpha", "a"}, {"beta", "b"}, {"preview", "rc"}, {"pre", "rc"}, {"rc", "rc"}, {"a", "a"}, {"b", "b"}, {"c", "rc"},
}

func parseRelease(s string) (release, bool) {
	var r release
	s, r.local, _ = strings.Cut(strings.ToLower(s), "+")
	if strings.Trim(r.local, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		return r, false
	}
	s = strings.TrimPrefix(s, "v")
	for {
		n, rest := cutNumber(s)
		if n == "" {
			return r, false
		}
		r.numbers = append(r.numbers, n)
		if s = rest; len(s) < 2 || s[0] != '.' || !isDigit(s[1]) {
			break
		}
		s = s[1:]
	}
	for _, st := range stages {
		if n, rest, ok := cutPart(s, st.spelt); ok {
			r.stage, r.pre, s = st.means, n, rest
			break
		}
	}
	for _, spelt := range []string{"post", "rev", "r"} {
		if n, rest, ok := cutPart(s, spelt); ok {
			r.post, s = n, rest
			break
		}
	}
	if n, rest, ok := cutPart(s, "dev"); ok {
		r.dev, s = n, rest
	}
	return r, s == ""
}

// cutPart takes a word and its number from the front: ".post1", "rc2", "-dev".
func cutPart(s, word string) (number, rest string, ok bool) {
	rest, ok = strings.CutPrefix(cutSeparator(s), word)
	if !ok {
		return "", s, false
	}
	number, rest = cutNumber(cutSeparator(rest))
	if number == "" {
		number = "0"
	}
	return number, rest, true
}

func cutSeparator(s string) string {
	if s != "" && strings.IndexByte("._-", s[0]) >= 0 {
		return s[1:]
	}
	return s
}

// cutNumber takes digits from the front and strips their leading zeros.
func cutNumber(s string) (number, rest string) {
	i := 0
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	if i == 0 {
		return "", s
	}
	if number = strings.TrimLeft(s[:i], "0"); number == "" {
		number = "0"
	}
	return number, s[i:]
}

func (r release) compare(o release) int {
	for i := range max(len(r.numbers), len(o.numbers)) {
		if c := compareNumbers(r.number(i), o.number(i)); c != 0 {
			return c
		}
	}
	return cmp.Or(
		cmp.Compare(r.rank(), o.rank()),
		compareNumbers(r.pre, o.pre),
		compareNumbers(r.post, o.post), // none is "", the least
		cmp.Compare(boolInt(r.dev == ""), boolInt(o.dev == "")),
		compareNumbers(r.dev, o.dev),
		strings.Compare(r.local, o.local),
	)
}

func (r release) number(i int) string {
	if i < len(r.numbers) {
		return r.numbers[i]
	}
	return "0"
}

// rank orders what stands behind equal numbers: a development release of the
// release itself comes before its first alpha.
func (r release) rank() int {
	switch {
	case r.stage == "a":
		return 1
	case r.stage == "b":
		return 2
	case r.stage == "rc":
		return 3
	case r.post == "" && r.dev != "":
		return 0
	}
	return 4
}

func compareNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
