package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
)

func (a *app) initCommand() *cobra.Command {
	var in door.InitIn
	cmd := &cobra.Command{
		Use: "init", Short: "write a first .caisson.yaml from what the repository's files tell", GroupID: groupMachine,
		Long: `Looks at the files of the commit that is checked out and writes a .caisson.yaml with what
they tell about tasks, commented out: take away the # of what is true, and commit it.
With --agents-md it also adds a section to AGENTS.md that asks agents to stop where a
boundary is missing; a .caisson.yaml that is there stays as it is. The section enforces nothing; the boundary does.`,
		Example: "  caisson init --print\n  caisson init --agents-md", Args: atMost(0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in.Repo = under(a.cfg.Dir, in.Repo)
			o, err := doQuick[*door.InitOut](a, cmd, in.Repo, "init", &in)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(o)
				return nil
			}
			var b strings.Builder
			for i, f := range o.Files {
				switch {
				case in.DryRun:
					if i > 0 {
						b.WriteByte('\n')
					}
					b.WriteString(lines(f.Text))
				case f.Written && f.There:
					fmt.Fprintf(&b, "added a section to %s\n", clean(f.Path))
				case f.Written:
					fmt.Fprintf(&b, "wrote %s\n", clean(f.Path))
				case filepath.Base(f.Path) != "AGENTS.md":
					fmt.Fprintf(&b, "left as it is: %s\n", clean(f.Path))
				default:
					fmt.Fprintf(&b, "left as it is: %s has the section\n", clean(f.Path))
				}
			}
			if !in.DryRun {
				b.WriteString("look at it, take away the # of what is true, and commit it\n")
			}
			_, err = io.WriteString(a.stdout(), b.String())
			return err
		},
	}
	cmd.Flags().StringVar(&in.Repo, "repo", "", "repository (default: the one around the working directory) `DIR`")
	cmd.Flags().BoolVar(&in.Agents, "agents-md", false, "also add a section for agents to AGENTS.md")
	cmd.Flags().BoolVar(&in.DryRun, "print", false, "write nothing, print what would be written")
	return cmd
}

// lines makes each line of a text safe for a terminal.
func lines(text string) string {
	out := strings.Split(text, "\n")
	for i := range out {
		out[i] = clean(out[i])
	}
	return strings.Join(out, "\n")
}
