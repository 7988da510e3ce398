package main

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"sgpatch/verify/trial"
)

const nasty = "x\x1b]0;title\a\x1b[2J\r\u202e\u009b31m\xff\n== gpu-2\nholds"

// fill puts text into every string that a value has, and makes every list hold one.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Interface {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), text)
			}
		}
	}
}

// TestHostileText: whatever a host, a file or a set says, it steers no terminal
// and passes for no line of ours.
func TestHostileText(t *testing.T) {
	for _, command := range []string{"apply", "verify", "revert", "status", "list", "show", "history", "version", "doctor", "preflight", "trial"} {
		for _, failed := range []bool{false, true} {
			r := &Report{}
			fill(reflect.ValueOf(r).Elem(), nasty)
			r.Command, r.Diff = command, strings.ReplaceAll(r.Diff, "\n", " ") // lines are what a diff is made of
			if !failed {
				r.Error = ""
			}
			switch command {
			case "list":
				var e listEntry
				fill(reflect.ValueOf(&e).Elem(), nasty)
				r.Entries = []any{e}
			case "trial":
				var m trial.Result
				fill(reflect.ValueOf(&m).Elem(), nasty)
				r.Measurements = &measurements{trial: &m}
			case "history":
				var e HistoryEntry
				fill(reflect.ValueOf(&e).Elem(), nasty)
				r.Entries = []any{e}
			}
			var out bytes.Buffer
			if failed {
				printError(r, &out)
			} else {
				printer{&out, false, true, true}.report(r)
			}
			if !strings.Contains(out.String(), `x\x1b]0;title\a\x1b[2J\r\u202e\u009b31m\xff`) {
				t.Errorf("%s: not written out: %q", command, &out)
			}
			for line := range strings.Lines(out.String()) {
				if strings.HasPrefix(line, "== ") || strings.TrimSuffix(line, "\n") == "holds" && command != "verify" {
					t.Errorf("%s: forged: %q", command, line)
				}
				if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsGraphic(r) && r != '\n' && r != '\t' }); i >= 0 {
					t.Errorf("%s: %q", command, line)
				}
			}
		}
	}
}

// TestDiffIsExact: a program that reads a diff gets every byte, colours or not.
func TestDiffIsExact(t *testing.T) {
	text := "--- a\n+++ b\n@@ -1 +1 @@\n-\xff\x1b[1m\r\n+\u202e\n"
	var out bytes.Buffer
	printer{w: &out}.diff(text)
	if out.String() != text {
		t.Errorf("%q", &out)
	}
}
