package main

import (
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
)

// markdown is the history as a card for an issue.
func markdown(all []HistoryEntry) string {
	var b strings.Builder
	b.WriteString("| when (UTC) | host | what | sets | SGLang | hardware | result | reason |\n|---|---|---|---|---|---|---|---|\n")
	for _, e := range all {
		for _, text := range []string{e.Time.UTC().Format("2006-01-02 15:04"), e.Host, e.Command, strings.Join(e.Sets, " "), release(e), e.Hardware, e.Result, e.Reason} {
			b.WriteString("| " + cell(text) + " ")
		}
		b.WriteString("|\n")
	}
	var files []string
	for _, e := range all {
		for _, f := range e.Files {
			files = append(files, fmt.Sprintf("- %s %s %s `%s`: %s, should be %s, pristine %s\n", e.Time.UTC().Format("2006-01-02 15:04"), cell(e.Command), cell(release(e)), strings.ReplaceAll(cell(f.Path), "`", ""), cell(short(f.Have)), cell(short(f.Want)), cell(short(f.Pristine))))
		}
	}
	if len(files) > 0 {
		b.WriteString("\n<details><summary>Files, by the first 12 digits of their SHA-256</summary>\n\n" + strings.Join(files, "") + "\n</details>\n")
	}
	return b.String()
}

func release(e HistoryEntry) string {
	if e.Install == nil {
		return ""
	}
	return e.Install.Release
}

func short(digest string) string { return fmt.Sprintf("%.12s", orDash(digest)) }

// cell is text that stays in its cell of a table, and text.
func cell(s string) string {
	s = strings.NewReplacer("\n", " ", "\\", "\\\\", "|", "\\|", "<", "&lt;", "[", "\\[", "*", "\\*", "@", "@\u200b").Replace(visible(s))
	return strings.TrimSpace(s)
}

// noFormula is text that a spreadsheet takes for text. It would work out what
// begins like a formula, and one may send the rest of the sheet away.
func noFormula(s string) string {
	if s != "" && strings.IndexByte("=+-@\t", s[0]) >= 0 {
		return "'" + s
	}
	return s
}

// commaSeparated is the history for a spreadsheet; the first line has the names.
func commaSeparated(all []HistoryEntry) string {
	var b strings.Builder
	w := csv.NewWriter(&b) // a strings.Builder takes everything
	w.Write([]string{"time", "host", "user", "command", "sets", "root", "release", "python", "hardware", "changed", "result", "reason", "exit", "program"})
	for _, e := range all {
		in := InstallReport{}
		if e.Install != nil {
			in = *e.Install
		}
		row := []string{e.Time.UTC().Format("2006-01-02T15:04:05Z"), e.Host, e.User, e.Command, strings.Join(e.Sets, " "), in.Root, in.Release, in.Python, e.Hardware, strings.Join(e.Changed, " "), e.Result, e.Reason, strconv.Itoa(e.Exit), e.Program}
		for i, text := range row {
			row[i] = noFormula(text)
		}
		w.Write(row)
	}
	w.Flush()
	return b.String()
}
