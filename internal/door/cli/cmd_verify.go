package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// VerifyOptions says what is attacked; see package verify.
type VerifyOptions struct {
	Backend, Version   string
	Lacks              []task.Feature // features of the backend that are not there
	Flags              []string       // of open
	Container, Command string
	Environ            []string
	Platform           string
	Progress           func(string)
	// Report is a file that gets the report in the format of the evidence; empty: none.
	Report string
}

func (a *app) verifyCommand() *cobra.Command {
	var o VerifyOptions
	var image, rootfs string
	cmd := &cobra.Command{
		Use:     "verify [flags]",
		Short:   "attack a boundary here and now, and say what held",
		GroupID: groupMachine,
		Long: `Opens a task of its own, has a hostile program attack the machine from inside it, runs the same
attacks without a boundary as controls, and says per property what held, what broke and what was not
shown. An attack whose control does not work counts as nothing. What it attacks are sentinels of its
own: files, sockets, listeners, a process, a key, variables; for the way out, names and servers in a network
of its own, which no packet leaves. Nothing of yours is changed, and nothing is left.

Without --backend every backend that is usable here is attacked. --container and --command attack
set-ups that are not caisson's with the same program, for comparison: --container NAME enters a running
container by docker or podman (the program is copied into its /tmp and removes itself); --command runs a
command of yours with {} in the place of the program to run. {dir} stands for the folder of that program,
which the command must make visible at the same path.

The exit status is 0 when everything that was shown held, 1 when something broke or nothing was shown, 5
when a boundary could not be had.`,
		Example:           "  caisson verify\n  caisson verify --backend linux --json\n  caisson verify --report verify.jsonl\n  caisson verify --command 'bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all {}'\n  caisson verify --command 'docker run --rm -v {dir}:{dir}:ro debian {}'\n  caisson verify --container web",
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n := given(o.Backend) + given(o.Container) + given(o.Command); n > 1 || n == 1 && o.Backend == "" && image+rootfs != "" {
				return usagef(cmd, "--backend (with --image or --rootfs), --container and --command each name what is attacked: one of them at most")
			}
			if o.Report != "" {
				if _, err := os.Lstat(o.Report); !errors.Is(err, fs.ErrNotExist) {
					return usagef(cmd, "--report %s: there is something of this name", o.Report).WithHint("name a file that is not there yet")
				}
				if !filepath.IsAbs(o.Report) {
					o.Report = filepath.Join(a.cfg.Dir, o.Report)
				}
			}
			for flag, v := range map[string]string{"--image": image, "--rootfs": rootfs} {
				if v != "" {
					o.Flags = append(o.Flags, flag, v)
				}
			}
			return a.verify(cmd, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Backend, "backend", "", "the `BACKEND` to attack a task of (default: each that is usable here)")
	f.StringVar(&image, "image", "", "open the task with this image `REF`, where the backend takes one")
	f.StringVar(&rootfs, "rootfs", "", "open the task with this root `DIR`")
	f.StringVar(&o.Container, "container", "", "attack the running container `NAME` of docker or podman")
	f.StringVar(&o.Command, "command", "", "attack what this `COMMAND` makes; {} is the program that it is to run")
	f.StringVar(&o.Report, "report", "", "write the report to this `FILE` too, as a chain of lines that can be checked later")
	return cmd
}

func given(v string) int {
	if v == "" {
		return 0
	}
	return 1
}

func (a *app) verify(cmd *cobra.Command, o VerifyOptions) error {
	if a.cfg.Verify == nil {
		return unsupported("`caisson verify`")
	}
	ctx := a.interruptible(cmd.Context())
	o.Environ, o.Progress = a.cfg.Env, a.ui.progress
	if o.Command != "" && !strings.Contains(o.Command, "{}") {
		return usagef(cmd, "--command: nothing says where the program to run goes").WithHint("put {} there, as in: bwrap --ro-bind / / {}")
	}
	d, err := do[*task.DoctorReport](a, cmd, "", "doctor", &door.None{}, nil)
	if err != nil {
		return err
	}
	o.Platform = d.Platform
	runs := []VerifyOptions{o}
	if o.Container == "" && o.Command == "" {
		if runs, err = a.backendsToVerify(d, o); err != nil {
			return err
		}
	}
	all := task.VerifyAll{Schema: "caisson.verification/1", Reports: []task.VerifyReport{}}
	for _, run := range runs {
		r, err := a.cfg.Verify(ctx, run)
		a.ui.clear()
		if err != nil {
			return canceled(ctx, err)
		}
		all.Reports = append(all.Reports, *r)
		if !a.json {
			if err := a.renderVerify(a.stdout(), r); err != nil {
				return err
			}
		}
	}
	if o.Report != "" {
		head, err := a.cfg.WriteVerified(o.Report, &all)
		if err != nil {
			return err
		}
		if !a.json {
			if _, err := fmt.Fprintf(a.stdout(), "\n%s\n  the hash of its last line is %s\n", clean(o.Report), head); err != nil {
				return err
			}
		}
	}
	if a.json {
		a.writeJSON(all)
	}
	worst := 0
	for _, r := range all.Reports {
		switch r.Verdict {
		case task.VerifyHeld:
		case task.VerifyNotTried:
			worst = max(worst, task.CodeUnavailable.ExitStatus())
		default:
			return status(1)
		}
	}
	if worst > 0 {
		return status(worst)
	}
	return nil
}

// backendsToVerify is one run for the backend that was asked for, or for each that is
// usable.
func (a *app) backendsToVerify(d *task.DoctorReport, o VerifyOptions) ([]VerifyOptions, error) {
	var runs []VerifyOptions
	for _, b := range d.Backends {
		if o.Backend == "" && !b.Usable || o.Backend != "" && o.Backend != b.Name {
			continue
		}
		run := o
		run.Backend, run.Version = b.Name, b.Version
		for _, f := range b.Features {
			if !f.OK {
				run.Lacks = append(run.Lacks, f)
			}
		}
		runs = append(runs, run)
	}
	if len(runs) == 0 {
		if o.Backend != "" {
			return []VerifyOptions{o}, nil // that there is none says who opens the task
		}
		return nil, task.Errorf(task.CodeUnavailable, "verify", "no backend is usable here: there is nothing to attack").WithHint("`caisson doctor` says what is missing")
	}
	return runs, nil
}
