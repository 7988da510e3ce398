package block

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The names asked for are N and M; want are the lines that set one, as "N1".
type handCase struct {
	name, text string
	want       []string
}

var handCases = []handCase{
	{"subscript", `os.environ["N"] = "1"`, []string{"N1"}},
	{"subscript, other quotes", "os.environ[ '''N''' ]= r'1'", []string{"N1"}},
	{"bytes", `os.environb[b"N"] = b"1"`, []string{"N1"}},
	{"setdefault", `os.environ.setdefault("N", "1")`, []string{"N1"}},
	{"putenv", `os.putenv("N", "1")`, []string{"N1"}},
	{"update", `environ.update({"N": "1"})`, []string{"N1"}},
	{"update by keyword", `os.environ.update(N="1", M='2')`, []string{"N1", "M1"}},
	{"or", `os.environ |= dict(N="1")`, []string{"N1"}},
	{"loop", "for _k, _v in {\"N\": \"1\", \"M\": \"LL\"}.items():\n    os.environ.setdefault(_k, _v)\n", []string{"N1", "M1"}},
	{"loop over lines", "for k, v in (\n  ('X', '1'),  # 'N'\n  ('M', '2'),\n  ('N', '1')):\n    os.environ[k] = v\n", []string{"M3", "N4"}},
	{"loop over names", "for k in 'N', 'M':\n    os.environ[k] = '1'\n", []string{"N1", "M1"}},
	{"loop over a list of names", "for k in ['N']:\n    os.environ[k] = '1'\n", []string{"N1"}},
	{"variable", "ENV = {\n  'N': '1',\n}\nos.environ.update(ENV)\n", []string{"N2"}},
	{"name in a variable", "GATE = 'N'\nos.environ[GATE] = '1'\n", []string{"N1"}},
	{"after an if", "if 'N' not in os.environ: os.environ['N'] = '1'", []string{"N1"}},
	{"after a get", "if not os.environ.get('N'):\n\tos.environ['N'] = '1'\n", []string{"N2"}},
	{"from itself", "os.environ['N'] = os.environ.get('N', '1')", []string{"N1"}},
	{"chained", "a['M'] = a['N'] = '1'", []string{"M1", "N1"}},
	{"two targets", "e['M'], e['N'] = '1', '2'", []string{"M1", "N1"}},
	{"annotated", "e['N']: str = '1'", []string{"N1"}},
	{"added", "e['N'] += 'x'", []string{"N1"}},
	{"getattr", "getattr(os, 'environ')['N'] = '1'", []string{"N1"}},
	{"continued", "os.environ \\\n  [\\\n'N'] = '1'", []string{"N3"}},
	{"twice on a line", "e['N'] = '1'; e['N'] = '2'", []string{"N1"}},
	{"pth", `import os; os.environ["N"] = "1"`, []string{"N1"}},
	{"crlf, bom", "\xef\xbb\xbfimport os\r\nos.environ['N'] = '1'\r\n", []string{"N2"}},
	{"after a broken line", "x = 'abc\ny = (\nos.environ['N'] = '1'\nz = '''\nos.environ['M'] = '1'\n", []string{"N3", "M5"}},
	{"in an f-string, set beside", "print(f\"{e['N']!r:>{w}} {'N' in e}\"); e['M'] = f'{x}'", []string{"M1"}},
	{"beside ours", "os.environ['N'] = '1'\n", []string{"N1"}},

	{"get", "x = os.environ.get('N')\ny = os.getenv(\"N\", '')\nz = get_bool_env_var('N', 'false')", nil},
	{"in", "if 'N' in os.environ and \"M\" not  in os.environ: pass", nil},
	{"read", "x = os.environ['N']\nf(os.environ['N'], os.environ['M'])\nif os.environ['N']: x = 1\ny = e['N'] or 1", nil},
	{"compare", "if os.environ['N'] == '1' != os.environ['M']: pass\nif k == 'N' or 'M' == k: pass", nil},
	{"compare before a target", "x = [os.environ['N'] == '1']; assert os.environ['N'], x", nil},
	{"membership", "if k in ('N', 'M'): pass\nx = k in {'N'}\nwhile k not in ['X', 'N']: pass", nil},
	{"taken away", "del os.environ['N']\nos.environ.pop('M', None); os.unsetenv('N')", nil},
	{"comment", "# os.environ['N'] = '1'\nx = 1  # 'N'\n", nil},
	{"docstring", "'''N'''\nclass A:\n    \"M\"\n", nil},
	{"larger string", "print('N=1'); x = ' N'; y = '''\nos.environ[\"N\"] = \"1\"\n'''", nil},
	{"module variable", "N = '1'\ndef M(): pass\nx == N", nil},
	{"other name", "os.environ['NN'] = '1'; os.environ['n'] = '1'", nil},
	{"empty", "", nil},
}

var shellCases = []handCase{
	{"plain", "N=1", []string{"N1"}},
	{"export", "  export N=1", []string{"N1"}},
	{"several", "export A=1 M=2 N='1'", []string{"M1", "N1"}},
	{"quoted word", "export 'N=1' \"M\"=2", []string{"N1", "M1"}},
	{"declare", "declare -x N=1\ntypeset -x M=$N\nreadonly N=1", []string{"N1", "M2", "N3"}},
	{"continued", "export A=1 \\\n    N=1\n", []string{"N2"}},
	{"csh", "setenv N 1", []string{"N1"}},
	{"csh, after an if", "if (! $?N) setenv N 1", []string{"N1"}},
	{"fish", "set -gx N 1\nset --export M 1\nset -g -x N 1\nset N 1\n", []string{"N1", "M2", "N3"}},
	{"unit", "[Service]\nEnvironment=N=1\nEnvironment=\"A=1\" \"N=1\"\nEnvironment=\"M=a b\"\n", []string{"N2", "N3", "M4"}},
	{"unit with spaces", "Environment = N=1", []string{"N1"}},
	{"unit, command", "ExecStart=/usr/bin/env N=1 python3 -m sglang.launch_server", []string{"N1"}},
	{"default", ": \"${N:=1}\"", []string{"N1"}},
	{"append", "N+=1", []string{"N1"}},
	{"for one command", "A=1 N=1 python3 x.py", []string{"N1"}},
	{"env", "exec env -u X N=1 python3", []string{"N1"}},
	{"docker", "docker run -e N=1 img", []string{"N1"}},
	{"after others", "true && N=1; [ -z x ] || export M=1", []string{"N1", "M1"}},
	{"after a keyword", "if true; then N=1; else M=1; fi", []string{"N1", "M1"}},
	{"crlf", "A=1\r\nN=1\r\n", []string{"N2"}},
	{"from itself", "export N=${N:-1}", []string{"N1"}},

	{"comment", "# export N=1\nexport A=1 # N=1\n;Environment=N=1\n\t#N=1", nil},
	{"read", "echo N=1 $N; [ \"$N\" = 1 ] && test N=1; [[ $N == 1 ]]", nil},
	{"unset", "unset N\nexport N\n", nil},
	{"other name", "NN=1 XN=1\nexport A_N=1 n=1", nil},
	{"in a value", "A=N=1 B='N=1'\nPATH=$PATH:N=1", nil},
	{"no shell at all", "\"'\\", nil},
}

func TestHand(t *testing.T) { testHand(t, Hand, handCases) }

func TestShell(t *testing.T) { testHand(t, Shell, shellCases) }

func testHand(t *testing.T, find func([]byte, []string) []Line, cases []handCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, l := range find([]byte(c.text), []string{"N", "M"}) {
				got = append(got, l.Name+string(rune('0'+l.Number)))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s\n%s", c.text, diff)
			}
		})
	}
}

func TestHandLeavesOursOut(t *testing.T) {
	text := set(t, "import os\nos.environ['N'] = '2'  # mine\n", Block{Entries: []Entry{{"N", "1", []string{rootA}}}})
	want := []Line{{10, "N", "os.environ['N'] = '2'  # mine"}}
	if diff := cmp.Diff(want, Hand([]byte(text), []string{"N"})); diff != "" {
		t.Error(diff)
	}
	if got := Hand([]byte(text), nil); got != nil {
		t.Errorf("nothing was asked for: %v", got)
	}
}

// Lines come in the order of the text, whatever the order of the names.
func TestHandOrder(t *testing.T) {
	text := []byte("e.update({'M': '1', 'N': '1'})\n")
	got := Hand(text, []string{"N", "M"})
	if !slices.IsSortedFunc(got, func(a, b Line) int { return a.Number - b.Number }) || got[0].Name != "M" {
		t.Errorf("%v", got)
	}
}

// Long texts must not take minutes; each of these once did, or might.
func TestHandIsLinear(t *testing.T) {
	for _, s := range []string{
		"f'{", "f'''{", "f'{(\n", "'\n", "'''x\n", "x\n'''\n", "(\n", "('\n", "N=1;", "'N' in (", "e['N'],", "'N',", "('N',",
		"f'{'N'}',", "\\\n", "(e['N'],", "#\n", "# >>> sgpatch\n", "if e['N']:", "e['N']\n",
	} {
		text := []byte(strings.Repeat(s, 100000/len(s)))
		start := time.Now()
		Hand(text, []string{"N"})
		Shell(text, []string{"N"})
		Position(text)
		Get(text)
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%q: %v", s, took)
		}
	}
}
