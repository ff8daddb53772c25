package cli

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// completeTimeout bounds how long a person waits for a completion.
const completeTimeout = 2 * time.Second

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "completion bash|zsh|fish",
		Short:   "print a shell's completion script",
		GroupID: groupMachine,
		Long:    "Prints a script that completes commands, flags, values and the names of tasks.",
		Example: `  source <(caisson completion bash)
  caisson completion zsh > "${fpath[1]}/_caisson"
  caisson completion fish > ~/.config/fish/completions/caisson.fish`,
		ValidArgs:             []string{"bash", "zsh", "fish"},
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exact(1, "a shell: bash, zsh or fish")(cmd, args); err != nil {
				return err
			}
			w, root := a.stdout(), cmd.Root()
			switch args[0] {
			case "bash":
				if err := root.GenBashCompletionV2(w, true); err != nil {
					return err
				}
				_, err := io.WriteString(w, bashWords)
				return err
			case "zsh":
				return root.GenZshCompletion(w)
			case "fish":
				return root.GenFishCompletion(w, true)
			}
			if args[0] == "powershell" {
				return unsupported("completion for powershell").WithHint("now there is: bash, zsh, fish")
			}
			return usagef(cmd, "no completion for %q", args[0]).WithHint("there is one for bash, zsh and fish")
		},
	}
}

// bashWords replaces the one function of the generated script that needs the
// bash-completion package, so that completion works without it. Bash splits
// words at = and :, which belong to our words: they are put together again.
const bashWords = `
__caisson_init_completion()
{
    COMPREPLY=()
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    local i w line=$COMP_LINE
    words=() cword=0
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        w=${COMP_WORDS[i]}
        if ((i > 0)) && [[ $line != [[:space:]]* ]] && [[ $w == [=:]* || ${COMP_WORDS[i-1]} == *[=:] ]]; then
            words[${#words[@]}-1]+=$w
        else
            words+=("$w")
            line=${line#"${line%%[![:space:]]*}"}
        fi
        line=${line#"$w"}
        ((i == COMP_CWORD)) && cword=$((${#words[@]} - 1))
    done
    cur=${words[cword]}
    prev=
    ((cword > 0)) && prev=${words[cword-1]}
    return 0
}
`

func fixed(values []string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// complete registers what the values of the shared flags can be.
func (r *requestFlags) complete(a *app, cmd *cobra.Command) {
	dirs := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	for flag, f := range map[string]cobra.CompletionFunc{
		"repo": dirs, "ro": dirs, "at": dirs,
		"source": fixed(strategies), "dirty": fixed(dirtyModes), "history": fixed(histories), "keep": fixed(keepModes),
		"backend": fixed(backends), "net": fixed(netModes), "phase": fixed([]string{"install"}), "allow": cobra.NoFileCompletions, "lend": a.completeLend, "publish": cobra.NoFileCompletions, "grant": fixed(grantKinds), "need": completeNeed,
		"name": cobra.NoFileCompletions, "parent": a.completeParent, "base": cobra.NoFileCompletions, "env": cobra.NoFileCompletions, "memory": cobra.NoFileCompletions,
		"cpus": cobra.NoFileCompletions, "pids": cobra.NoFileCompletions, "disk": cobra.NoFileCompletions, "net-bytes": cobra.NoFileCompletions, "net-connections": cobra.NoFileCompletions, "net-rate": cobra.NoFileCompletions, "timeout": cobra.NoFileCompletions,
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, f)
	}
}

// completeLend offers the handles of the policy that holds for the repository, also
// behind a comma.
func (a *app) completeLend(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	repo, _ := cmd.Flags().GetString("repo")
	base, _ := cmd.Flags().GetString("base")
	repo = under(a.cfg.Dir, repo)
	o, ok := silently[*door.PolicyOut](a, cmd, repo, "policy", &door.PolicyIn{Repo: repo, Base: base})
	if !ok {
		return nil, directive
	}
	var rules struct{ Credentials []struct{ Name, As string } }
	if json.Unmarshal(o.Rules, &rules) != nil {
		return nil, directive
	}
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var out []string
	for _, c := range rules.Credentials {
		if !slices.Contains(handles([]string{before}), c.Name) {
			out = append(out, before+c.Name+"\t"+c.As)
		}
	}
	return out, directive
}

// completeParent offers the open tasks.
func (a *app) completeParent(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeTaskIn(task.Ready, task.Paused)(cmd, nil, "")
}

func completeNeed(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, x := range task.Axes {
		for l := 1; l <= task.MaxLevel(x); l++ {
			out = append(out, string(x)+"="+level(l)+"\t"+x.Title())
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeTask offers ids and names of tasks for the first argument.
func (a *app) completeTask(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.taskNames(cmd), cobra.ShellCompDirectiveNoFileComp
}

// completeTaskThenFiles offers tasks first, then leaves the rest to the shell.
func (a *app) completeTaskThenFiles(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.taskNames(cmd), cobra.ShellCompDirectiveNoFileComp
}

// completeTaskIn offers the tasks that are in one of these states.
func (a *app) completeTaskIn(states ...task.State) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.taskNames(cmd, states...), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeBranch offers tasks, then names for the branch.
func (a *app) completeBranch(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var out []string
	switch len(args) {
	case 0:
		out = a.taskNames(cmd)
	case 1:
		views := a.taskViews(cmd)
		named := meant(views)[args[0]]
		for _, v := range views {
			if v.ID == named || named == "" && string(v.ID) == args[0] {
				out = append(out, "caisson/"+string(v.ID)+"\tas without a name")
				if v.Name != "" {
					out = append(out, "caisson/"+v.Name)
				}
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// taskNames lists tasks, those in some states or all, as a shell would type them.
func (a *app) taskNames(cmd *cobra.Command, states ...task.State) []string {
	var out []string
	views := a.taskViews(cmd)
	names := meant(views)
	for _, v := range views {
		if len(states) > 0 && !slices.Contains(states, v.State) {
			continue
		}
		about := string(v.State)
		// A name that a shell would have to quote, or that means another task, is
		// left out; the id works.
		if names[v.Name] == v.ID && v.Name == clean(v.Name) && quoteArgv([]string{v.Name}) == v.Name {
			out = append(out, v.Name+"\t"+string(v.ID)+" "+about)
			continue
		}
		out = append(out, string(v.ID)+"\t"+about)
	}
	return out
}

// taskViews lists tasks that are not closed. It is silent about every failure:
// there is nobody to tell.
func (a *app) taskViews(cmd *cobra.Command) []task.View {
	l, ok := silently[*door.ListOut](a, cmd, "", "list", &door.ListIn{})
	if !ok {
		return nil
	}
	return l.Tasks
}

// meant returns the task that each name means, of tasks that are not closed, oldest
// first: the one that lives, else the newest.
func meant(views []task.View) map[string]task.ID {
	ids, lives := map[string]task.ID{}, map[string]bool{}
	for _, v := range views {
		over := v.State == task.Closing || v.State == task.Kept || v.State == task.Stuck
		if v.Name == "" || over && lives[v.Name] {
			continue
		}
		ids[v.Name], lives[v.Name] = v.ID, !over
	}
	return ids
}

// silently runs an operation for a completion; ok is false when it failed.
func silently[O any](a *app, cmd *cobra.Command, repo, name string, in any) (out O, ok bool) {
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeTimeout)
	defer cancel()
	if a.checkWorkspaceEnv(repo) != nil {
		return out, false
	}
	e, closer, err := a.cfg.Engine(ctx, true, func(string) {})
	if err != nil {
		return out, false
	}
	defer closer()
	out, err = door.Do[O](ctx, a.call(e), name, in)
	return out, err == nil
}
