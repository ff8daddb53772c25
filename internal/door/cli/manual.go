package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Page is the manual of one command, before it is rendered.
type Page struct {
	Name     string // "caisson-diff"
	Short    string // one line, lower case
	Usage    []string
	Text     string // as in --help
	Flags    []PageFlag
	Global   []PageFlag // of every command
	Examples string
	Sections []PageSection // after the flags
	Others   []string      // the names of the other pages
}

// PageFlag is one flag.
type PageFlag struct{ Short, Name, Value, Usage string }

// PageSection is a text under a title of its own. Indented lines of it stand as
// they are.
type PageSection struct{ Title, Text string }

const filesText = `  $XDG_STATE_HOME/caisson   (else ~/.local/state/caisson) the record of all tasks, their
                            files while they are kept, and the evidence of each
  $XDG_RUNTIME_DIR/caisson  sockets of open tasks
  refs/caisson/ID/          in your repository: what was rescued of task ID

docs/state.md says what each file is.
`

// Manual returns the pages of the command tree: one of the program, one of each
// command that help shows.
func Manual() []Page {
	a := &app{}
	a.ui = newUI(a.cfg)
	root := a.root()
	main := Page{
		Name: root.Name(), Short: root.Short, Usage: []string{"caisson COMMAND [flags]", "caisson help TOPIC", "caisson --version"},
		Text:   "caisson gives every agent task its own execution boundary, says exactly what that boundary isolates and what it does not, proves it by probing it from inside, and ends the task without losing work.\n\n" + commandsText(root),
		Global: pageFlags(root.PersistentFlags(), nil),
		Examples: `  caisson run -- make test
  caisson open --name fix && caisson exec fix -- go test ./... && caisson close fix`,
		Sections: []PageSection{{"exit status", exitCodesText()}},
	}
	for _, t := range topics {
		if t.name != "exit-codes" && t.name != "environment" {
			main.Sections = append(main.Sections, PageSection{t.name, t.text()})
		}
	}
	main.Sections = append(main.Sections, PageSection{"environment", environmentText}, PageSection{"files", filesText})
	pages := []Page{main}
	for _, c := range visible(root) {
		text := c.Long
		if text == "" {
			text = strings.ToUpper(c.Short[:1]) + c.Short[1:] + "."
		}
		pages = append(pages, Page{
			Name: root.Name() + "-" + c.Name(), Short: c.Short, Usage: []string{"caisson " + c.Use}, Text: text, Examples: c.Example,
			Flags: pageFlags(c.Flags(), root.PersistentFlags()), Global: main.Global,
			Sections: []PageSection{{"exit status", exitStatusOf(c)}, {"environment", environmentText}, {"files", filesText}},
		})
	}
	for i := range pages {
		for j := range pages {
			if i != j {
				pages[i].Others = append(pages[i].Others, pages[j].Name)
			}
		}
	}
	return pages
}

// visible lists the commands that help shows.
func visible(root *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, c := range root.Commands() {
		if !c.Hidden && c.GroupID != "" {
			out = append(out, c)
		}
	}
	return out
}

func commandsText(root *cobra.Command) string {
	var b strings.Builder
	for _, g := range groupTitles {
		b.WriteString("Commands, " + g.title + ":\n")
		for _, c := range visible(root) {
			if c.GroupID == g.id {
				b.WriteString("  " + c.Name() + strings.Repeat(" ", max(1, 12-len(c.Name()))) + c.Short + "\n")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// exitStatusOf tells the statuses of one command.
func exitStatusOf(c *cobra.Command) string {
	session, others, _ := strings.Cut(exitCodesText(), "\n\n")
	others, _, _ = strings.Cut(others, "\n\n")
	_, others, _ = strings.Cut(others, "\n")
	text := others
	if c.Annotations[passes] != "" {
		_, session, _ = strings.Cut(session, "\n")
		text = "The command's own status, 128+n when signal n ended it, or\n" + session
	}
	return text + "\n\nThe error codes are in caisson(1).\n"
}

// pageFlags lists flags in their order, without those of except.
func pageFlags(fs, except *pflag.FlagSet) []PageFlag {
	var out []PageFlag
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || except != nil && except.Lookup(f.Name) != nil {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		pf := PageFlag{Short: f.Shorthand, Name: f.Name, Usage: usage}
		if f.Value.Type() != "bool" {
			pf.Value, pf.Usage = value, strings.TrimSuffix(usage, " "+value)
		}
		out = append(out, pf)
	})
	return out
}
