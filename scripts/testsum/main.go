// Command testsum reads `go test -json` on standard input and prints what a
// person needs: one line per package, the output of what failed, and in a
// file every skipped test with its reason.
//
// Its limit: it judges nothing; the exit status is 1 when a test, a package or
// a build failed or the stream held no test at all.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

type totals struct{ passed, failed, skipped, packages int }

func main() {
	label, file := "", os.DevNull
	if len(os.Args) == 3 {
		label, file = os.Args[1], os.Args[2]
	}
	skips, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	n := summarize(os.Stdin, os.Stdout, skips, label)
	if err := skips.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %d tests passed, %d failed, %d skipped in %d packages\n", label, n.passed, n.failed, n.skipped, n.packages)
	if n.failed > 0 || n.passed == 0 {
		os.Exit(1)
	}
}

// noise is what the testing package writes around a test's own words.
var noise = regexp.MustCompile(`^\s*(=== |--- )`)

func summarize(r io.Reader, out, skips io.Writer, label string) (n totals) {
	said := map[string][]string{} // package and test → its output
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil || e.Action == "" {
			fmt.Fprintln(out, sc.Text()) // the go command's own words
			continue
		}
		key := e.Package + "\x00" + e.Test
		switch e.Action {
		case "output":
			if e.Test == "" && (strings.HasPrefix(e.Output, "ok ") || strings.HasPrefix(e.Output, "FAIL\t")) {
				fmt.Fprint(out, e.Output)
				continue
			}
			said[key] = append(said[key], e.Output)
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "build-fail":
			n.failed++
		case "pass", "skip", "fail":
			if e.Test == "" {
				n.packages++
			}
			switch {
			case e.Action == "fail":
				fmt.Fprint(out, strings.Join(said[key], ""))
				n.failed++
			case e.Test == "":
			case e.Action == "pass":
				n.passed++
			default:
				n.skipped++
				fmt.Fprintf(skips, "%s: %s %s: %s\n", label, short(e.Package), e.Test, reason(said[key]))
			}
			delete(said, key)
		}
	}
	// A process that was killed ends its stream without a verdict.
	for key, lines := range said {
		if _, test, _ := strings.Cut(key, "\x00"); test != "" {
			fmt.Fprintf(out, "no verdict: %s\n%s", strings.ReplaceAll(key, "\x00", " "), strings.Join(lines, ""))
			n.failed++
		}
	}
	return n
}

func short(pkg string) string {
	_, rest, ok := strings.Cut(pkg, "/caisson/")
	if !ok {
		return pkg
	}
	return rest
}

// reason is what the test said, without position and frame.
func reason(lines []string) string {
	var words []string
	for _, l := range lines {
		if noise.MatchString(l) {
			continue
		}
		l = strings.TrimSpace(l)
		if file, rest, ok := strings.Cut(l, ".go:"); ok && !strings.Contains(file, " ") {
			_, l, _ = strings.Cut(rest, ": ")
		}
		if l != "" {
			words = append(words, l)
		}
	}
	if len(words) == 0 {
		return "no reason printed"
	}
	return words[len(words)-1]
}
