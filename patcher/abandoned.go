package patcher

import (
	"slices"

	"sgpatch/patcher/block"
)

// strangers says whether a revert finds roots in the block that do not stand
// behind it: in a copied environment they are all there is, and keep the gate on.
func (w *planner) strangers() bool {
	abandoned := w.s.abandoned()
	if len(w.s.Receipt.Sets) != len(w.next.Sets) {
		return len(abandoned) > 0
	}
	goes := map[string]bool{}
	for _, id := range w.g.Revert {
		w.namesOf(id, goes)
	}
	return slices.ContainsFunc(abandoned, func(v block.Var) bool { return goes[v.Name] })
}

// abandoned are the entries of roots that do not stand behind the block.
func (s *Site) abandoned() []block.Var {
	var all []block.Var
	for _, root := range s.Block.Roots() {
		if root != s.root && !alive(root, s.entryAt) {
			all = append(all, s.Block.Wants(root)...)
		}
	}
	return all
}

// adopted are those of them that belong to code which is in place here without a
// receipt, as in an image layer: they are this root's from now on.
func (s *Site) adopted() []block.Var {
	all := s.abandoned()
	if len(all) == 0 {
		return nil
	}
	ours := map[string]bool{}
	for _, k := range s.known {
		v := s.View(k.ID)
		for _, e := range k.Env {
			ours[e.Name] = ours[e.Name] || (!v.Enabled && len(v.Files) > 0 && (v.State == Held || v.State == Partial))
		}
	}
	return slices.DeleteFunc(all, func(v block.Var) bool { return !ours[v.Name] })
}
