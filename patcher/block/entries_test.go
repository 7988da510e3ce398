package block

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func with(t *testing.T, b Block, root string, env ...Var) Block {
	t.Helper()
	out, err := b.With(root, env)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWith(t *testing.T) {
	both := with(t, with(t, Block{Made: true}, rootB, Var{gate, "1"}), rootA, Var{gate, "1"}, Var{"A", "x"})
	want := Block{Made: true, Entries: []Entry{{"A", "x", []string{rootA}}, {gate, "1", []string{rootA, rootB}}}}
	if diff := cmp.Diff(want, both); diff != "" {
		t.Error(diff)
	}
	t.Run("exactly these", func(t *testing.T) {
		got := with(t, both, rootA, Var{"Z", ""})
		want := Block{Made: true, Entries: []Entry{{gate, "1", []string{rootB}}, {"Z", "", []string{rootA}}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("another value, alone", func(t *testing.T) {
		got := with(t, both, rootA, Var{gate, "1"}, Var{"A", "y"}).Wants(rootA)
		if diff := cmp.Diff([]Var{{"A", "y"}, {gate, "1"}}, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("another value, shared", func(t *testing.T) {
		_, err := both.With(rootA, []Var{{gate, "0"}})
		var conflict *ConflictError
		if !errors.As(err, &conflict) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&ConflictError{gate, "1", "0", []string{rootB}}, conflict); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		if diff := cmp.Diff(both.Without(rootA), with(t, both, rootA)); diff != "" {
			t.Error(diff)
		}
	})
	if diff := cmp.Diff(want, both); diff != "" {
		t.Error("the receiver was changed:", diff)
	}
}

func TestWithout(t *testing.T) {
	b := with(t, with(t, Block{}, rootB, Var{gate, "1"}), rootA, Var{gate, "1"}, Var{"A", "x"})
	if diff := cmp.Diff(one(rootB), b.Without(rootA)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(one(rootB), b.Keep(func(root string) bool { return root == rootB })); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{rootA, rootB}, b.Roots()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Block{}, b.Without(rootA).Without(rootB)); diff != "" {
		t.Error(diff)
	}
	if b.Wants("/elsewhere") != nil || (Block{}).Roots() != nil {
		t.Error("something for nobody")
	}
}

func TestUnlawful(t *testing.T) {
	cases := map[string]Block{
		"no name":       {Entries: []Entry{{"", "1", []string{rootA}}}},
		"name":          {Entries: []Entry{{"A-B", "1", []string{rootA}}}},
		"name, newline": {Entries: []Entry{{"A\n", "1", []string{rootA}}}},
		"digit":         {Entries: []Entry{{"1A", "1", []string{rootA}}}},
		"letter":        {Entries: []Entry{{"É", "1", []string{rootA}}}},
		"NUL":           {Entries: []Entry{{"A", "1\x00", []string{rootA}}}},
		"twice":         {Entries: []Entry{{"A", "1", []string{rootA}}, {"A", "1", []string{rootB}}}},
		"root":          {Entries: []Entry{{"A", "1", []string{"opt"}}}},
		"root empty":    {Entries: []Entry{{"A", "1", []string{""}}}},
		"root NUL":      {Entries: []Entry{{"A", "1", []string{"/\x00"}}}},
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			var entry *EntryError
			if _, err := Set(nil, b); !errors.As(err, &entry) {
				t.Error(err)
			}
		})
	}
	var entry *EntryError
	if _, err := (Block{}).With(rootA, []Var{{"A", "1"}, {"A", "1"}}); !errors.As(err, &entry) {
		t.Error(err)
	}
}

func TestLiteral(t *testing.T) {
	cases := map[string]string{
		"":                      `""`,
		"plain /a:b=c":          `"plain /a:b=c"`,
		"\"\\\n\r\t":            `"\"\\\n\r\t"`,
		"\x01\x7f":              `"\x01\x7f"`,
		"é":                     `"\u00e9"`,
		"\xe9":                  `"\udce9"`,
		"😀":                     `"\U0001f600"`,
		"\xed\xb3\xbf":          `"\udced\udcb3\udcbf"`,
		"\ufffd":                `"\ufffd"`,
		"/coding=latin-1":       `"/coding\x3dlatin-1"`,
		"/x-coding:utf":         `"/x-coding\x3autf"`,
		"/>>> sgpatch >>>":      `"/\x3e\x3e\x3e sgpatch \x3e\x3e\x3e"`,
		"${HOME} 'a' #b %s {x}": `"${HOME} 'a' #b %s {x}"`,
	}
	for s, want := range cases {
		got := literal(s)
		if got != want {
			t.Errorf("literal(%q) = %s, want %s", s, got, want)
		}
		if back, rest, ok := cutLiteral(got + ", x"); back != s || rest != ", x" || !ok {
			t.Errorf("cutLiteral(%s) = %q, %q, %v", got, back, rest, ok)
		}
	}
	for _, s := range []string{``, `x`, `"`, `"\`, `"\q"`, `"\x1"`, `"\u12"`, `"\ud800"`, `"\U00110000"`, `"\xzz"`} {
		if v, _, ok := cutLiteral(s); ok {
			t.Errorf("cutLiteral(%s) = %q", s, v)
		}
	}
}
