//go:build linux

package tools

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// other runs a program that knows files on its own account.
func other(t *testing.T, stdin string, argv ...string) string {
	t.Helper()
	if _, err := exec.LookPath(argv[0]); err != nil {
		t.Skipf("%s is not installed", argv[0])
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v", argv, err)
	}
	return string(out)
}

// iconv, file and sha256sum see what the tools say: a text that iconv wrote is
// read, one that a tool edits is the one that iconv makes of the edited text.
func TestEncodingsByIconv(t *testing.T) {
	p := at(t)
	for _, c := range []struct{ name, iconv, mark, text string }{
		{"utf-8", "UTF-8", "", "größe 日本 😀\n"},
		{"utf-8", "UTF-8", "\ufeff", "größe 日本 😀\r\n"},
		{"utf-16le", "UTF-16LE", "\ufeff", "größe 日本 😀\r\nzwei\r\n"},
		{"utf-16be", "UTF-16BE", "\ufeff", "größe 日本 😀\nzwei"},
		{"latin-1", "ISO-8859-1", "", "größe ÿ\r\n"},
	} {
		in := func(text string) string { return other(t, c.mark+text, "iconv", "-f", "UTF-8", "-t", c.iconv) }
		p.put("f", in(c.text))
		var r contract.ReadFileResult
		p.must(contract.ReadFile, contract.ReadFileArgs{Path: "f"}, &r)
		if r.Content != c.text || r.Encoding != c.name || r.BOM != (c.mark != "") {
			t.Errorf("%s: %+v", c.name, r)
		}
		if want, _, _ := strings.Cut(other(t, p.get("f"), "sha256sum"), " "); r.SHA256 != want {
			t.Errorf("%s: sha256 %s, sha256sum says %s", c.name, r.SHA256, want)
		}
		p.must(contract.EditFile, contract.EditFileArgs{Path: "f", Edits: []contract.Edit{{Old: "größe", New: "Öl"}}}, new(contract.EditFileResult))
		if want := in(strings.Replace(c.text, "größe", "Öl", 1)); p.get("f") != want {
			t.Errorf("%s: edited %q, iconv makes %q", c.name, p.get("f"), want)
		}
		lines := strings.ReplaceAll(c.text, "\r\n", "\n")
		p.must(contract.WriteFile, contract.WriteFileArgs{Path: "f", Content: lines}, new(contract.WriteFileResult))
		if want := in(c.text); p.get("f") != want {
			t.Errorf("%s: written %q, iconv makes %q", c.name, p.get("f"), want)
		}
	}
}

// file agrees about what is a text, on files of this machine.
func TestKindsByFile(t *testing.T) {
	p := at(t)
	for _, name := range []string{"/bin/sh", "/etc/passwd", "/etc/hosts", "/usr/bin/env", os.Args[0], "read.go", "others_test.go"} {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		p.put("f", string(b[:min(len(b), 1<<20)]))
		mime := other(t, "", "file", "-b", "--mime", p.path("f"))
		var r contract.ReadFileResult
		p.must(contract.ReadFile, contract.ReadFileArgs{Path: "f", Limit: 1}, &r)
		if isText := !strings.Contains(mime, "charset=binary"); isText != (r.Kind == "text") {
			t.Errorf("%s: %s, file says %s", name, r.Kind, mime)
		}
	}
}

// A program that reads all the time sees one of the versions, whole.
func TestAtomicByAnotherProgram(t *testing.T) {
	p := at(t)
	p.put("f", strings.Repeat("a", 100<<10))
	cmd := exec.Command("sh", "-c", `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do tr -s a-z < f; echo; done`)
	cmd.Dir = p.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Skipf("no shell: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for i := 0; ; i++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range strings.Fields(out.String()) {
				if len(line) != 1 {
					t.Errorf("a mixture was read: %q", line)
				}
			}
			return
		default:
			p.must(contract.WriteFile, contract.WriteFileArgs{Path: "f", Content: strings.Repeat(string(rune('a'+i%26)), 100<<10)}, new(contract.WriteFileResult))
		}
	}
}
