package verify

import "testing"

func TestOn(t *testing.T) {
	for value, want := range map[string]bool{"1": true, "true": true, "True": true, "TRUE": true, "": false, "0": false, "false": false, "yes": false, "on": false, " 1": false, "2": false} {
		if On(value) != want {
			t.Errorf("%q: %v", value, !want)
		}
	}
}

func TestHasOption(t *testing.T) {
	const option = "expandable_segments:True"
	for list, want := range map[string]bool{
		"expandable_segments:True": true, "max_split_size_mb:128,expandable_segments:True": true, " expandable_segments : True ": true,
		"expandable_segments:False": false, "max_split_size_mb:128": false, "": false, "xexpandable_segments:True": false,
	} {
		if hasOption(list, option) != want {
			t.Errorf("%q: %v", list, !want)
		}
	}
}

func TestIsOption(t *testing.T) {
	const option = "--disable-custom-all-reduce"
	for arg, want := range map[string]bool{
		"--disable-custom-all-reduce": true, "--disable-custom-all-reduce=true": true, "--disable-custom": true, "--disable-cus": true,
		"--disable-cuda-graph": false, "--disable-c": false, "--disable-custom-all-reduces": false, "disable-custom-all-reduce": false, "-": false, "": false,
	} {
		if isOption(arg, option) != want {
			t.Errorf("%q: %v", arg, !want)
		}
	}
}
