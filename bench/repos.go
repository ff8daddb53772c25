//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

const (
	seed       = 4 // of everything that is drawn
	largeFiles = 50_000
	perFolder  = 200
)

// filePath is the name of the i-th file of a generated repository.
func filePath(i int) string { return fmt.Sprintf("d%03d/f%05d.txt", i/perFolder, i) }

// makeRepo makes a repository of n files in folders of 200, text of 100 to 4,000
// bytes each, one commit, everything checked out. The same n gives the same
// objects on every machine.
func makeRepo(ctx context.Context, dir string, n int) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	stream := dir + ".import"
	if err := writeImport(stream, n); err != nil {
		return err
	}
	defer os.Remove(stream)
	// As a user would have it: packed objects, the usual index.
	script := `cd "$0" && git init -q -b main . && git fast-import --quiet <"$1" && git reset -q --hard main && git update-index -q --refresh`
	_, err := do(ctx, []string{"sh", "-ec", script, dir, stream}, nil, nil)
	return err
}

func writeImport(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	for i := range n {
		text := fileText(r)
		fmt.Fprintf(w, "blob\nmark :%d\ndata %d\n%s\n", i+1, len(text), text)
	}
	const who = "Bench <bench@example.org> 1700000000 +0000"
	fmt.Fprintf(w, "commit refs/heads/main\nauthor %s\ncommitter %s\ndata 5\nStart\n", who, who)
	for i := range n {
		fmt.Fprintf(w, "M 100644 :%d %s\n", i+1, filePath(i))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

var words = strings.Fields("return value error close open read write task boundary source layer level call reply check path file folder name size count index table plan")

func fileText(r *rand.Rand) string {
	var b strings.Builder
	for size := 100 + r.IntN(3900); b.Len() < size; {
		for range 3 + r.IntN(9) {
			b.WriteString(words[r.IntN(len(words))])
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d\n", r.IntN(1000))
	}
	return b.String()
}

// large makes the large repository when it is first asked for.
func (b *bench) large(ctx context.Context) (string, error) {
	if b.big == "" {
		dir := filepath.Join(b.dir, "large")
		b.say("making a repository of %d files", b.o.files)
		if err := makeRepo(ctx, dir, b.o.files); err != nil {
			return "", err
		}
		b.big = dir
	}
	return b.big, nil
}

// change is a shell script that does to a checkout of n files what a task does
// to the large one: 100 files edited, 100 added, 10 removed.
func change(n int) string {
	var b strings.Builder
	b.WriteString("set -e\n")
	step := max(1, n/100)
	for i := 0; i < n && i < 100*step; i += step {
		fmt.Fprintf(&b, "echo changed >>%s\n", filePath(i))
	}
	b.WriteString("mkdir added\nfor i in $(seq 100); do echo new $i >added/$i; done\n")
	for i := range min(10, n/20) {
		fmt.Fprintf(&b, "rm %s\n", filePath(i*step+1))
	}
	return b.String()
}
