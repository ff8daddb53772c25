//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// disk weighs what one open task holds on disk.
func (b *bench) disk(ctx context.Context) error {
	t := table{title: "Disk per open task", head: []string{"what", "files and folders", "KiB allocated", "x git clone --shared", "of it outside the source, KiB"},
		note: "What the task's folder occupies, hard links once. Objects of the user's repository are shared, not copied, by both. Outside the source: record, evidence, the host's own view of the files. The inventory of all tasks and the worker program (once per installation) are not in it."}
	big, err := b.large(ctx)
	if err != nil {
		return err
	}
	in := b.installation("disk")
	for _, r := range []struct{ name, repo string }{{"small", b.small}, {"large", big}} {
		clone := filepath.Join(b.dir, "disk-clone")
		if _, err := b.do(ctx, "git", "clone", "-q", "--shared", r.repo, clone); err != nil {
			return err
		}
		plain, pn, err := weigh(clone)
		if err = errors.Join(err, os.RemoveAll(clone)); err != nil {
			return err
		}
		if _, err := in.caisson(ctx, "open", "-q", "--repo", r.repo, "--name", r.name); err != nil {
			return err
		}
		live, err := in.list(ctx)
		if err != nil || len(live) != 1 {
			return errors.Join(err, fmt.Errorf("%d tasks are open instead of one", len(live)))
		}
		folder := filepath.Join(in.state, "tasks", live[0].ID)
		all, n, err := weigh(folder)
		source, _, serr := weigh(filepath.Join(folder, "source"))
		if err = errors.Join(err, serr); err != nil {
			return err
		}
		t.row("git clone --shared, "+r.name, fmt.Sprint(pn), fmt.Sprint(plain>>10), "1.00", "–")
		t.row("caisson task, "+r.name, fmt.Sprint(n), fmt.Sprint(all>>10), fmt.Sprintf("%.2f", float64(all)/float64(plain)), fmt.Sprint((all-source)>>10))
		b.figures["disk/"+r.name], b.figures["disk/"+r.name+"/git clone --shared"] = float64(all), float64(plain)
		if _, err := in.caisson(ctx, "close", "-q", "--discard", r.name); err != nil {
			return err
		}
	}
	b.tables = append(b.tables, t)
	return nil
}

// weigh returns the allocated bytes and the number of entries below dir.
func weigh(dir string) (bytes int64, n int, err error) {
	seen := map[uint64]bool{}
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || seen[st.Ino] {
			return nil
		}
		seen[st.Ino] = true
		bytes, n = bytes+st.Blocks*512, n+1
		return nil
	})
	return bytes, n, err
}
