package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Metric finds a number in what a benchmark prints.
type Metric struct {
	Name   string
	Higher bool    // is better
	Moves  float64 // of a guard: the share by which it may differ
	re     *regexp.Regexp
	field  []string // of a line of JSON, in place of re
}

// ParseMetric reads NAME=REGEX[:higher|lower]. The first group of REGEX is the
// number; higher is better unless it says otherwise. In place of REGEX,
// json:FIELD is a number in lines of JSON, with dots for fields of fields.
func ParseMetric(s string) (Metric, error) {
	m, rest, err := named(s)
	if err != nil {
		return m, err
	}
	m.Higher = true
	if r, ok := strings.CutSuffix(rest, ":lower"); ok {
		rest, m.Higher = r, false
	} else {
		rest = strings.TrimSuffix(rest, ":higher")
	}
	return m.compile(rest)
}

// ParseGuard reads NAME=REGEX[:PERCENT], 2 % if it does not say.
func ParseGuard(s string) (Metric, error) {
	m, rest, err := named(s)
	if err != nil {
		return m, err
	}
	m.Moves = 0.02
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		if p, err := strconv.ParseFloat(rest[i+1:], 64); err == nil && p >= 0 {
			m.Moves, rest = p/100, rest[:i]
		}
	}
	return m.compile(rest)
}

func named(s string) (m Metric, rest string, err error) {
	m.Name, rest, _ = strings.Cut(s, "=")
	if m.Name == "" || rest == "" {
		return m, "", fmt.Errorf("%q: NAME=REGEX was expected", s)
	}
	return m, rest, nil
}

func (m Metric) compile(pattern string) (Metric, error) {
	if field, ok := strings.CutPrefix(pattern, "json:"); ok {
		m.field = strings.Split(field, ".")
		if slices.Contains(m.field, "") {
			return m, fmt.Errorf("%s: json: needs the name of a field", m.Name)
		}
		return m, nil
	}
	re, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return m, fmt.Errorf("%s: %w", m.Name, err)
	}
	if re.NumSubexp() < 1 {
		return m, fmt.Errorf("%s: %q has no group in parentheses for the number", m.Name, pattern)
	}
	m.re = re
	return m, nil
}

// Read returns the last number that fits: benchmarks print their results at the end.
// NaN and infinities are none: nothing can be ranked by them, and an earlier
// number is not the result.
func (m Metric) Read(output []byte) (float64, bool) {
	if m.field != nil {
		return m.readLines(output)
	}
	all := m.re.FindAllSubmatch(output, -1)
	for i := len(all) - 1; i >= 0; i-- {
		if v, err := strconv.ParseFloat(strings.ReplaceAll(string(all[i][1]), ",", ""), 64); err == nil {
			return v, !math.IsNaN(v) && !math.IsInf(v, 0)
		}
	}
	return 0, false
}

// readLines looks for the field in lines that are objects of JSON, from the end.
func (m Metric) readLines(output []byte) (float64, bool) {
	lines := bytes.Split(output, []byte("\n"))
	for _, line := range slices.Backward(lines) {
		var object map[string]any
		if json.Unmarshal(line, &object) != nil {
			continue
		}
		for i, name := range m.field {
			v, ok := object[name]
			if !ok {
				break
			}
			if number, ok := v.(float64); ok && i == len(m.field)-1 {
				return number, true
			}
			object, _ = v.(map[string]any)
		}
	}
	return 0, false
}

// Known are numbers that SGLang's own benchmarks print, most telling first. The
// lines were read in their source: sglang/bench_serving.py (0.5.9) and
// sglang/benchmark/serving.py (0.5.23); bench_one_batch_server_internal.py
// (0.5.9) and benchmark/one_batch_server.py; benchmark/one_batch.py (0.5.23).
var Known = []string{
	`output tok/s=^Output token throughput \(tok/s\):\s+([0-9.]+)`,
	`output tok/s=^output throughput: ([0-9.]+) tok/s`,
	`decode tok/s=^Decode\.  median latency: +[0-9.]+ s, median throughput: +([0-9.]+) token/s`,
}

// KnownGuard is what must not move in those: with another length the two ways
// did not do the same work.
const KnownGuard = `accept length=^Accept length:\s+([0-9.]+):2`
