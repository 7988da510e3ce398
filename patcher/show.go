package patcher

import (
	"fmt"

	"sgpatch/patcher/patchset"
)

// Show is the diff of a set for this install, with the lines where its hunks
// really are; "" for a set without code.
func (s *Site) Show(id string) (string, error) {
	k, ok := s.Known(id)
	if !ok {
		return "", &UnknownSetError{id, s.ids()}
	}
	if len(k.Variants) == 0 {
		return "", nil
	}
	v := s.View(id)
	w, ok := k.Variant(v.Variant)
	if !ok {
		return "", &RefusedError{Code: "no-fit", Path: s.firstFile(k), Message: fmt.Sprintf("%s is %s in %s: %s", id, v.State, s.In.Root, v.Reason), Hint: "sgpatch show " + id + " --release VERSION"}
	}
	var files []patchset.File
	for _, f := range w.Files {
		files = append(files, s.moved(f, v))
	}
	return string(patchset.Print(files)), nil
}

// moved renumbers the hunks of a file by where they are found.
func (s *Site) moved(f patchset.File, v SetView) patchset.File {
	at := f
	for _, fv := range v.Files {
		if fv.Path == f.Path && fv.State == Patched {
			at = f.Reverse()
		}
	}
	fit := at.Fit(s.file(f.Path).data)
	hunks := make([]patchset.Hunk, len(f.Hunks))
	for i, h := range f.Hunks {
		if fit[i].Reason == "" {
			h.OldLine, h.NewLine = h.OldLine+fit[i].Offset, h.NewLine+fit[i].Offset
		}
		hunks[i] = h
	}
	f.Hunks = hunks
	return f
}
