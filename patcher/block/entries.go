package block

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Var is a variable that a root wants.
type Var struct{ Name, Value string }

// ConflictError says that a root wants a value for a variable which other
// roots, sharing the file, want to have another value.
type ConflictError struct {
	Name       string
	Have, Want string
	Roots      []string // those that want Have
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s should be %q, but is %q for %s", e.Name, e.Want, e.Have, strings.Join(e.Roots, ", "))
}

// EntryError says that an entry or a root cannot be written into a block.
type EntryError struct {
	Name string // the variable
	What string
}

func (e *EntryError) Error() string { return fmt.Sprintf("entry %q: %s", e.Name, e.What) }

// With returns the block in which root wants exactly env. The errors are
// *ConflictError and *EntryError; b itself is never changed.
func (b Block) With(root string, env []Var) (Block, error) {
	out := b.Without(root)
	for _, v := range env {
		i := slices.IndexFunc(out.Entries, func(e Entry) bool { return e.Name == v.Name })
		if i < 0 {
			out.Entries = append(out.Entries, Entry{v.Name, v.Value, []string{root}})
			continue
		}
		e := &out.Entries[i]
		switch {
		case slices.Contains(e.Roots, root):
			return Block{}, &EntryError{v.Name, "it stands twice"}
		case e.Value != v.Value:
			return Block{}, &ConflictError{v.Name, e.Value, v.Value, e.Roots}
		}
		e.Roots = append(e.Roots, root)
	}
	return out.normal()
}

// Without returns the block in which root wants nothing.
func (b Block) Without(root string) Block {
	return b.Keep(func(r string) bool { return r != root })
}

// Keep returns the block without the roots that are not alive, and without the
// entries that nobody wants any more. Made stays, even if nothing else is left.
func (b Block) Keep(alive func(root string) bool) Block {
	out := Block{Made: b.Made}
	for _, e := range b.Entries {
		var roots []string
		for _, root := range e.Roots {
			if alive(root) {
				roots = append(roots, root)
			}
		}
		if len(roots) > 0 {
			out.Entries = append(out.Entries, Entry{e.Name, e.Value, roots})
		}
	}
	return out
}

// Wants returns what root wants, sorted by name.
func (b Block) Wants(root string) []Var {
	var out []Var
	for _, e := range b.Entries {
		if slices.Contains(e.Roots, root) {
			out = append(out, Var{e.Name, e.Value})
		}
	}
	slices.SortFunc(out, func(x, y Var) int { return cmp.Compare(x.Name, y.Name) })
	return out
}

// Roots returns the roots that want anything, sorted.
func (b Block) Roots() []string {
	var out []string
	for _, e := range b.Entries {
		out = append(out, e.Roots...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// normal returns b sorted, checked, without doubles, and sharing no memory
// with b. Two histories that lead to the same wishes give the same bytes.
func (b Block) normal() (Block, error) {
	out := b.Keep(func(string) bool { return true })
	slices.SortStableFunc(out.Entries, func(x, y Entry) int { return cmp.Compare(x.Name, y.Name) })
	for i := range out.Entries {
		e := &out.Entries[i]
		slices.Sort(e.Roots)
		e.Roots = slices.Compact(e.Roots)
		if i > 0 && out.Entries[i-1].Name == e.Name {
			return Block{}, &EntryError{e.Name, "it stands twice"}
		}
		if err := e.check(); err != nil {
			return Block{}, err
		}
	}
	return out, nil
}

func (e Entry) check() error {
	switch {
	case !lawful(e.Name):
		return &EntryError{e.Name, "not a name for a variable: letters, digits and _ only, no digit first"}
	case strings.ContainsRune(e.Value, 0):
		return &EntryError{e.Name, "a NUL in its value"}
	}
	for _, root := range e.Roots {
		if !strings.HasPrefix(root, "/") || strings.ContainsRune(root, 0) {
			return &EntryError{e.Name, fmt.Sprintf("%q is not the absolute path of a root", root)}
		}
	}
	return nil
}

// lawful says whether a variable's name needs no thought about how to write it.
func lawful(name string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	return name != "" && strings.Contains(letters, name[:1]) && strings.Trim(name, letters+"0123456789") == ""
}
