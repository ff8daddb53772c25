package cli

import (
	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/task"
)

// What later versions bring. The names exist so that nobody who types them
// believes that they did something.
var (
	laterCommands = []string{
		"evidence", "audit", "integrate", "ui", "uhp", "acp",
	}
)

// laterHints says what serves instead today.
var laterHints = map[string]string{
	"evidence": "now: `caisson log TASK --json`",
}

func unsupported(what string) *task.Error {
	return task.Errorf(task.CodeUnsupported, "cli", "%s is not in this version", what)
}

// unavailable is the same of what a task was to run on.
func unavailable(what string) *task.Error {
	return task.Errorf(task.CodeUnavailable, "cli", "%s is not in this version", what)
}

func later(name, shown string) *task.Error {
	e := unsupported(shown)
	if h := laterHints[name]; h != "" {
		return e.WithHint("%s", h)
	}
	return e.WithHint("`caisson --help` lists what there is")
}

// addLater adds the commands of later versions: refused by name, whatever follows.
func (a *app) addLater(root *cobra.Command) {
	for _, n := range laterCommands {
		root.AddCommand(&cobra.Command{
			Use: n, Hidden: true, DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error {
				for _, s := range args {
					if s == "--json" {
						a.json = true
					}
				}
				return later(n, "`caisson "+n+"`")
			},
		})
	}
}
