package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "policy show|check|explain|diff|test|schema",
		Short:   "what the operator, you and the repository want, and what follows",
		GroupID: groupMachine,
		Long: `Policy files say what every task must have and what it may reach: the operator's in
/etc/caisson/policy.d/*.yaml, yours in ~/.config/caisson/policy.yaml, a repository's in
.caisson.yaml as of the revision that a task starts from. A repository, a task and a
model can only tighten, or ask for something inside what was delegated to them.
docs/policy.md explains every key.`,
		Example: "  caisson policy show\n  caisson policy explain egress example.com:443\n  caisson policy check --as project .caisson.yaml",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef(cmd, "there is no `caisson policy %s`", clipped(args[0])).WithHint("there are show, check, explain, diff, test and schema")
			}
			return usagef(cmd, "caisson policy needs to know what to do").WithHint("there are show, check, explain, diff, test and schema")
		},
	}
	for _, c := range []*cobra.Command{a.policyShow(), a.policyCheck(), a.policyExplain(), a.policyDiff(), a.policyTest(), a.policySchema()} {
		c.Flags().SortFlags = false
		c.DisableFlagsInUseLine = true
		cmd.AddCommand(c)
	}
	return cmd
}

// policyFlags say which policy is meant.
type policyFlags struct{ repo, base, agent, file, as string }

func (p *policyFlags) add(cmd *cobra.Command, file bool) {
	cmd.Flags().StringVar(&p.repo, "repo", "", "repository that it is for (default: the one around the working directory) `DIR`")
	cmd.Flags().StringVar(&p.base, "base", "", "revision whose .caisson.yaml counts (default HEAD) `REV`")
	cmd.Flags().StringVar(&p.agent, "agent", "", "an agent by name, whose definition may demand something `NAME`")
	if file {
		cmd.Flags().StringVar(&p.file, "file", "", "one policy file or folder in place of all `FILE`")
		cmd.Flags().StringVar(&p.as, "as", "", "whose it is: operator (default), user, project, task, agent or model `SOURCE`")
	}
}

func (p *policyFlags) in(dir string) (door.PolicyIn, error) {
	in := door.PolicyIn{Repo: p.repo, Base: p.base, Agent: p.agent, File: p.file, As: p.as}
	if in.As != "" && in.File == "" {
		return in, task.Errorf(task.CodeUsage, "cli", "--as says whose a file is, and no file is named").WithHint("add --file FILE")
	}
	in.Repo, in.File = under(dir, in.Repo), under(dir, in.File)
	return in, nil
}

// named is in for a command whose only word may name the file.
func (p *policyFlags) named(dir string, args []string) (door.PolicyIn, error) {
	if len(args) > 0 {
		p.file = args[0]
	}
	return p.in(dir)
}

// addNamed adds the flags of such a command.
func (p *policyFlags) addNamed(cmd *cobra.Command) {
	p.add(cmd, false)
	cmd.Flags().StringVar(&p.as, "as", "", "whose FILE is: operator (default), user, project, task, agent or model `SOURCE`")
}

// doQuick is do without a look at what is due: policy has no part in that.
func doQuick[O any](a *app, cmd *cobra.Command, repo, name string, in any) (O, error) {
	var zero O
	ctx := a.interruptible(cmd.Context())
	e, err := a.open(ctx, repo, true)
	if err != nil {
		return zero, canceled(ctx, err)
	}
	out, err := door.Do[O](ctx, a.call(e), name, in)
	return out, canceled(ctx, err)
}

func (a *app) policyShow() *cobra.Command {
	var p policyFlags
	cmd := &cobra.Command{
		Use: "show", Short: "every value that holds, and who set it where",
		Long:    "Prints every value that holds for a task on the repository, with the file and line that set it.",
		Example: "  caisson policy show\n  caisson policy show --json | jq .rules", Args: atMost(0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := p.in(a.cfg.Dir)
			if err != nil {
				return err
			}
			o, err := doQuick[*door.PolicyOut](a, cmd, in.Repo, "policy", &in)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(o)
				return nil
			}
			return a.renderPolicy(a.stdout(), o)
		},
	}
	p.add(cmd, true)
	return cmd
}

func (a *app) renderPolicy(w io.Writer, o *door.PolicyOut) error {
	var b strings.Builder
	who := "you decide here: there is no operator's policy"
	if o.Operator {
		who = "the operator decides here"
	}
	fmt.Fprintf(&b, "%s\n", who)
	for _, s := range o.Sources {
		if s.File != "" {
			fmt.Fprintf(&b, "  %-9s %s\n", s.Source, clean(s.File))
		}
	}
	if len(o.Changed) > 0 {
		fmt.Fprintf(&b, "trust in this repository ended: %s changed\n", clean(strings.Join(o.Changed, ", ")))
	}
	last := ""
	for _, v := range o.Values {
		name := v.Path
		if name == last {
			name = ""
		} else {
			b.WriteByte('\n')
			last = name
		}
		where := string(v.Source)
		if v.Where != "" {
			where += " " + v.Where
		}
		if v.Source == task.SourceDefault {
			where = "shipped"
		}
		fmt.Fprintf(&b, "%-22s %s  (%s)\n", name, clean(v.Value), clean(where))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (a *app) policyCheck() *cobra.Command {
	var p policyFlags
	var within string
	cmd := &cobra.Command{
		Use: "check [FILE]", Short: "whether policy files are right, or whether one allows nothing that another does not",
		Long: `Reads every policy file that holds here, or the one that is named, and says what is
wrong with it. With --within it says whether FILE allows anything that the other file
does not, exactly; the status is 4 when it does. A folder stands for its *.yaml files.`,
		Example: "  caisson policy check\n  caisson policy check --as project .caisson.yaml\n  caisson policy check new.yaml --within /etc/caisson/policy.d", Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := p.named(a.cfg.Dir, args)
			if err != nil {
				return err
			}
			if within != "" {
				if in.File == "" {
					return usagef(cmd, "--within compares with a file, and none is named")
				}
				return a.comparePolicy(cmd, within, in.File, true)
			}
			o, err := doQuick[*door.PolicyOut](a, cmd, in.Repo, "policy", &in)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(o)
				return nil
			}
			n := 0
			for _, s := range o.Sources {
				if s.File != "" {
					n++
				}
			}
			_, err = fmt.Fprintf(a.stdout(), "right: %s\n", counted(n, "policy file"))
			return err
		},
	}
	p.addNamed(cmd)
	cmd.Flags().StringVar(&within, "within", "", "the policy that FILE is to lie in `FILE`")
	return cmd
}

func (a *app) policyDiff() *cobra.Command {
	return &cobra.Command{
		Use: "diff A B", Short: "what becomes reachable from one policy to another",
		Long:    "Says what B allows or demands otherwise than A. What loosens is marked with +. A folder stands for its *.yaml files.",
		Example: "  caisson policy diff /etc/caisson/policy.d new.d", Args: exact(2, "two policy files"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.comparePolicy(cmd, args[0], args[1], false) },
	}
}

// comparePolicy compares two files. strict makes it an error that the second allows more.
func (a *app) comparePolicy(cmd *cobra.Command, from, to string, strict bool) error {
	in := door.CompareIn{From: under(a.cfg.Dir, from), To: under(a.cfg.Dir, to)}
	o, err := doQuick[*door.CompareOut](a, cmd, "", "compare-policy", &in)
	if err != nil {
		return err
	}
	if a.json {
		a.writeJSON(o)
	} else {
		var b strings.Builder
		for _, c := range o.Changes {
			mark := " "
			if c.Loose {
				mark = "+"
			} else if strict {
				continue
			}
			fmt.Fprintf(&b, "%s %-22s %s  (%s)\n", mark, c.Path, clean(c.Text), clean(c.Where))
		}
		switch {
		case o.Within && strict:
			b.WriteString("it lies within\n")
		case len(o.Changes) == 0:
			b.WriteString("no difference\n")
		}
		if _, err := io.WriteString(a.stdout(), b.String()); err != nil {
			return err
		}
	}
	if strict && !o.Within {
		return task.Errorf(task.CodeDenied, "cli.policy", "%s allows what %s does not", to, from).WithHint("`caisson policy diff` shows all of what differs")
	}
	return nil
}

func (a *app) policyExplain() *cobra.Command {
	var p policyFlags
	cmd := &cobra.Command{
		Use: "explain KIND WORD…", Short: "what the rules answer to one question, and which of them decides",
		Long: `Answers one question by the rules that hold for a task on the repository:

  egress HOST:PORT            egress GET https://HOST/PATH
  mount PATH [ro|rw]          env NAME
  credential HANDLE           grant ptrace|userns
  command PROGRAM WORD…       tool NAME [PATH | PROGRAM WORD…]

HOST:PORT alone, and METHOD URL, are about egress; what --net and --allow of one task grant is beside the rules and shown by
"caisson show TASK". deny counts before ask and ask before allow. What nothing grants is denied.`,
		Example: "  caisson policy explain registry.example.com:443\n  caisson policy explain mount ~/.ssh\n  caisson policy explain -- tool shell git push --force", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && strings.Contains(args[0], ":"), len(args) == 2 && strings.Contains(args[1], "://") && strings.ToUpper(args[0]) == args[0]:
				args = append([]string{"egress"}, args...)
			case len(args) > 1 && strings.HasPrefix(args[len(args)-1], "--") && cmd.ArgsLenAtDash() < 0 && (args[0] == "egress" || strings.Contains(args[0], ":")):
				return usagef(cmd, "%s stands behind what is asked about: flags come before it", args[len(args)-1])
			case len(args) == 1 && strings.Contains(args[0], "."):
				return usagef(cmd, "%s names no port: ask about %s:443", args[0], args[0])
			}
			if len(args) < 2 {
				return usagef(cmd, "%s needs a kind and what it is about", cmd.CommandPath())
			}
			in, err := p.in(a.cfg.Dir)
			if err != nil {
				return err
			}
			o, err := doQuick[*door.ExplainOut](a, cmd, in.Repo, "explain", &door.ExplainIn{PolicyIn: in, Kind: args[0], Words: args[1:]})
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(o)
				return nil
			}
			var b strings.Builder
			fmt.Fprintf(&b, "%s: %s\n  %s%s\n", o.Verdict, clean(o.Question), clean(o.Rule), originText(o.Source, o.Where))
			for _, v := range o.Beside {
				fmt.Fprintf(&b, "  also: %s%s\n", clean(v.Value), originText(v.Source, v.Where))
			}
			if args[0] == "egress" && o.Verdict == task.VerdictDeny && o.Source == "" {
				b.WriteString("  one task is granted it by --net or --allow when it begins, or by `caisson allow TASK HOST:PORT` while it is open\n")
			}
			_, err = io.WriteString(a.stdout(), b.String())
			return err
		},
	}
	cmd.Flags().SetInterspersed(false)
	p.add(cmd, true)
	return cmd
}

func originText(s task.Source, where string) string {
	switch {
	case s == "":
		return ""
	case where == "":
		return " (" + string(s) + ")"
	}
	return " (" + string(s) + " " + clean(where) + ")"
}

func (a *app) policyTest() *cobra.Command {
	var p policyFlags
	cmd := &cobra.Command{
		Use: "test [FILE]", Short: "answer the questions in the tests of policy files, and compare",
		Long:    "Answers every question that stands under tests in the files that hold here, or in the one that is named, and compares with what is expected there. The status is 1 when one differs.",
		Example: "  caisson policy test\n  caisson policy test new.yaml", Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := p.named(a.cfg.Dir, args)
			if err != nil {
				return err
			}
			o, err := doQuick[*door.PolicyTestOut](a, cmd, in.Repo, "test-policy", &door.PolicyTestIn{PolicyIn: in})
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(o)
			} else {
				var b strings.Builder
				for _, t := range o.Tests {
					if t.OK {
						fmt.Fprintf(&b, "ok    %s\n", clean(t.Name))
						continue
					}
					fmt.Fprintf(&b, "FAIL  %s: expected %s, is %s (%s)  %s\n", clean(t.Name), t.Expect, t.Verdict, clean(t.Rule), clean(t.Where))
				}
				fmt.Fprintf(&b, "%s, %d failed\n", counted(len(o.Tests), "test"), o.Failed)
				if _, err := io.WriteString(a.stdout(), b.String()); err != nil {
					return err
				}
			}
			if o.Failed > 0 {
				return task.Errorf(task.CodeConflict, "cli.policy", "%d of %d answers are not the expected ones", o.Failed, len(o.Tests)).WithHint("`caisson policy explain` says which rule decides")
			}
			return nil
		},
	}
	p.addNamed(cmd)
	return cmd
}

func (a *app) policySchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "the JSON Schema of policy files, for editors",
		Long:    "Prints the JSON Schema of policy files. An editor that knows YAML schemas takes it from the first line\n  # yaml-language-server: $schema=FILE",
		Example: "  caisson policy schema > caisson.schema.json", Args: atMost(0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := doQuick[*door.SchemaOut](a, cmd, "", "policy-schema", &door.None{})
			if err != nil {
				return err
			}
			_, err = a.stdout().Write(o.JSON)
			return err
		},
	}
}

func (a *app) trustCommand() *cobra.Command {
	var in door.TrustIn
	cmd := &cobra.Command{
		Use: "trust [REPO]", Short: "say that you know and trust a repository's code", GroupID: groupMachine,
		Long: `Records that you know this repository's code, so that tasks on it count as trusted. The
record rests on its files that decide what runs or what may be asked for (.caisson.yaml,
agents' settings and definitions, .envrc): when one of them changes it does not count
any more, and ` + "`caisson policy show`" + ` names the file.`,
		Example: "  caisson trust\n  caisson trust ~/src/shop\n  caisson trust --revoke\n  caisson trust --list", Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				in.Repo = args[0]
			}
			if in.List && (in.Revoke || in.Repo != "") {
				return usagef(cmd, "--list lists every repository")
			}
			in.Repo = under(a.cfg.Dir, in.Repo)
			o, err := doQuick[*door.TrustOut](a, cmd, in.Repo, "trust", &in)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(o)
				return nil
			}
			var b strings.Builder
			switch {
			case in.List:
				for _, k := range o.Known {
					fmt.Fprintf(&b, "%s  since %s\n", clean(k.Repo), k.Since.Format("2006-01-02"))
				}
			case o.Revoked:
				fmt.Fprintf(&b, "not trusted any more: %s\n", clean(o.Repo))
			case in.Revoke:
				fmt.Fprintf(&b, "was not trusted: %s\n", clean(o.Repo))
			case o.Trusted:
				fmt.Fprintf(&b, "trusted: %s\n", clean(o.Repo))
			default:
				fmt.Fprintf(&b, "not trusted: %s\n", clean(o.Repo))
			}
			if len(o.Files) > 0 && !in.List {
				fmt.Fprintf(&b, "until one of these changes: %s\n", clean(strings.Join(o.Files, ", ")))
			}
			_, err = io.WriteString(a.stdout(), b.String())
			return err
		},
	}
	cmd.Flags().BoolVar(&in.Revoke, "revoke", false, "take it back")
	cmd.Flags().BoolVar(&in.List, "list", false, "list the repositories that you trust")
	cmd.Flags().BoolVar(&in.DryRun, "dry-run", false, "only say what it would rest on")
	return cmd
}
