// Command manpages writes the manual pages of the command line, one file per
// command, from the same texts as --help.
//
// Its limit: it only renders what package cli says, is part of no program that
// is installed, and writes the same bytes whenever and wherever it runs.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/caisson-dev/caisson/internal/door/cli"
)

func main() {
	out := flag.String("out", "", "the folder to write to")
	version := flag.String("version", "", "the version to name")
	epoch := flag.Int64("epoch", 0, "the date to name, in seconds since 1970; 0: none")
	flag.Parse()
	if err := write(*out, *version, *epoch); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

// write makes the pages. Older ones in the folder are removed: a command that
// is gone has no page.
func write(dir, version string, epoch int64) error {
	if dir == "" || flag.NArg() > 0 {
		return fmt.Errorf("usage: manpages -out DIR [-version V] [-epoch SECONDS]")
	}
	if s := os.Getenv("SOURCE_DATE_EPOCH"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH is %q", s)
		}
		epoch = n
	}
	date := ""
	if epoch > 0 {
		date = time.Unix(epoch, 0).UTC().Format(time.DateOnly)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "caisson*.1"))
	if err != nil {
		return err
	}
	for _, p := range old {
		if err := os.Remove(p); err != nil {
			return err
		}
	}
	for _, p := range cli.Manual() {
		if err := os.WriteFile(filepath.Join(dir, p.Name+".1"), []byte(render(p, version, date)), 0o644); err != nil {
			return err
		}
	}
	return nil
}
