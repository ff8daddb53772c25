package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) acceptCommand() *cobra.Command {
	var (
		q                        task.AcceptRequest
		axes                     []string
		span, scope, revoke, key string
		list, sudo, yes          bool
	)
	cmd := &cobra.Command{
		Use:     "accept TASK|REPORT|FILE|- --axis AXIS=LEVEL --reason TEXT",
		Short:   "accept a weaker boundary than a task needs, on record",
		GroupID: groupTask,
		Long: `Puts on record that somebody takes responsibility for a gap that ` + "`plan`" + ` or a refused
` + "`run`" + ` reported. REPORT is the digest that the report prints, FILE or - what
` + "`caisson plan --json`" + ` wrote, TASK an open task whose policy was raised. The acceptance
holds for exactly that report: when more is missing, or for another reason, it does not
count. It has an end (8 hours unless --for says otherwise) and can be taken back.

Who may accept what is said by the report and by ` + "`caisson policy show`" + `. It takes a
terminal at least; --sudo asks the system for your password, --key signs with a security
key that wants a touch, where a policy asks for either.

What this cannot do: a program that runs as you and outside of any boundary can drive a
terminal as you do. Only --sudo and --key keep such a program from accepting.`,
		Example: `  caisson accept sha256:4f… --axis KRN=1 --reason "our own code, nightly run"
  caisson plan --json -- make | caisson accept - --axis KRN=1 --scope repo --for 2d --reason "no VM here"
  caisson accept --list
  caisson accept --revoke a5k2m9x7f3`,
		Args:              atMost(1),
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case list:
				return a.listAcceptances(cmd)
			case revoke != "":
				if _, err := do[*door.None](a, cmd, "", "revoke", &door.RevokeIn{ID: revoke, Reason: q.Reason}, nil); err != nil {
					return err
				}
				a.ui.note("acceptance %s is taken back; what runs under it runs on, nothing new begins", clean(revoke))
				return nil
			case len(args) == 0:
				return usagef(cmd, "caisson accept needs what is accepted").WithHint("a report's digest, a task, or the output of `caisson plan --json`")
			}
			var err error
			q.Ref, q.Scope, q.Axes = args[0], task.AcceptScope(scope), task.Vector{}
			for _, s := range axes {
				x, l, err := task.ParseNeed(s)
				if err != nil {
					return err
				}
				q.Axes[x] = l
			}
			if err := closed("scope", scope, []string{string(task.ScopeCommand), string(task.ScopeTask), string(task.ScopeRepo)}, nil); err != nil {
				return err
			}
			if span != "" {
				if q.For, err = parseSpan("for", span); err != nil {
					return err
				}
			}
			if q.Uses < 0 {
				return usagef(cmd, "--uses %d: the number of tasks that may begin under it", q.Uses)
			}
			if q.Report, err = a.planned(args[0]); err != nil {
				return err
			}
			if err := a.assure(cmd, &q, sudo, key, yes); err != nil {
				return err
			}
			out, err := do[*door.AcceptOut](a, cmd, "", "accept", &door.AcceptIn{Request: q}, nil)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(out)
				return nil
			}
			for i := range out.Acceptances {
				x := &out.Acceptances[i]
				if _, err := fmt.Fprintf(a.stdout(), "%s %s %d accepted until %s (%s)\n", x.ID, x.Axis, x.Level, stamp(x.Expires), x.Scope); err != nil {
					return err
				}
			}
			if !a.quiet && q.Assurance.Rank() <= task.AssuredTTY.Rank() {
				a.ui.note("accepted at a terminal: a program that runs as you outside of any boundary could have done so too; --sudo and --key rule that out")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&axes, "axis", nil, "the level that is accepted, for example KRN=1; may be repeated `AXIS=LEVEL`")
	f.StringVar(&q.Reason, "reason", "", "why, for the record `TEXT`")
	f.StringVar(&span, "for", "", "how long from now (default 8h) `DURATION`")
	f.IntVar(&q.Uses, "uses", 0, "how many tasks may begin under it (default: any number until it ends) `N`")
	f.StringVar(&scope, "scope", "", "command (the default), task or repo `SCOPE`")
	f.BoolVar(&sudo, "sudo", false, "have the system ask for your password (assurance os-auth)")
	f.StringVar(&key, "key", "", "sign with this security key: the private key's file of an sk-… key (assurance hardware) `FILE`")
	f.BoolVar(&yes, "yes", false, "do not ask again at the terminal")
	f.BoolVar(&list, "list", false, "list acceptances")
	f.StringVar(&revoke, "revoke", "", "take one back `ID`")
	_ = cmd.RegisterFlagCompletionFunc("scope", fixed([]string{string(task.ScopeCommand), string(task.ScopeTask), string(task.ScopeRepo)}))
	_ = cmd.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)
	return cmd
}

// planned reads what `plan --json` wrote, or a refusal's JSON, where ref names
// a file.
func (a *app) planned(ref string) (*task.AcceptReport, error) {
	var in io.Reader = a.cfg.Stdin
	switch {
	case ref == "-":
	case strings.ContainsAny(ref, "/") || strings.HasSuffix(ref, ".json"):
		ref = under(a.cfg.Dir, ref)
		f, err := openNoWait(ref)
		if err != nil {
			return nil, task.Errorf(task.CodeUsage, "cli", "%s: %w", ref, err)
		}
		defer f.Close()
		in = f
	default:
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(in, 16<<20))
	if err != nil {
		return nil, task.Errorf(task.CodeUsage, "cli", "%s: %w", ref, err)
	}
	var p task.PlanReport
	if err := json.Unmarshal(data, &p); err != nil || p.Report == "" {
		return nil, task.Errorf(task.CodeUsage, "cli", "%s is not what `caisson plan --json` writes", clipped(ref)).WithHint("caisson plan --json … > plan.json")
	}
	if len(p.Missing) == 0 {
		return nil, task.Errorf(task.CodeUsage, "cli", "nothing is missing in that plan: there is nothing to accept")
	}
	r := p.Answered()
	return &r, nil
}

// assure finds out how it is known that a person accepts.
func (a *app) assure(cmd *cobra.Command, q *task.AcceptRequest, sudo bool, key string, yes bool) error {
	q.Assurance = task.AssuredNone
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err == nil {
		defer tty.Close()
	}
	atTerminal := err == nil && isTerminal(tty) && (isTerminal(a.cfg.Stdin) || q.Ref == "-") && isTerminal(a.cfg.Stderr)
	if atTerminal {
		q.Assurance = task.AssuredTTY
		if !yes {
			names := []string{}
			for _, x := range task.Axes {
				if l, ok := q.Axes[x]; ok {
					text := fmt.Sprintf("%s %d (%s)", x, l, x.Title())
					if q.Report != nil {
						text += fmt.Sprintf(" where %d is needed", q.Report.Short[x][0])
					}
					names = append(names, text)
				}
			}
			fmt.Fprintf(tty, "Accept %s, although more is needed?\n", strings.Join(names, ", "))
			for _, l := range describe(q) {
				fmt.Fprintln(tty, "  "+clean(l))
			}
			fmt.Fprint(tty, "[y/N] ")
			line, _ := bufio.NewReader(tty).ReadString('\n')
			if s := strings.ToLower(strings.TrimSpace(line)); s != "y" && s != "yes" {
				return task.Errorf(task.CodeDenied, "cli", "not accepted: nothing was recorded")
			}
		}
	}
	if sudo {
		if err := a.askSystem(cmd.Context()); err != nil {
			return err
		}
		q.Assurance = task.AssuredOS
	}
	if key != "" {
		q.SignedAt = time.Now().UTC().Truncate(time.Second)
		q.Key, q.Signature, err = a.signWith(cmd.Context(), key, q)
		if err != nil {
			return err
		}
		q.Assurance = task.AssuredKey
	}
	return nil
}

func (a *app) listAcceptances(cmd *cobra.Command) error {
	out, err := do[*door.AcceptOut](a, cmd, "", "acceptances", &door.None{}, nil)
	if err != nil {
		return err
	}
	if a.json {
		a.writeJSON(out)
		return nil
	}
	if len(out.Acceptances) == 0 {
		a.ui.note("nothing was accepted")
		return nil
	}
	now := time.Now()
	for i := range out.Acceptances {
		x := &out.Acceptances[i]
		state := "until " + stamp(x.Expires)
		switch {
		case x.Revoked != nil:
			state = "taken back " + stamp(*x.Revoked)
		case !now.Before(x.Expires):
			state = "ended " + stamp(x.Expires)
		case x.MaxUses > 0 && x.Uses >= x.MaxUses:
			state = "used up"
		}
		what := string(x.Task)
		switch {
		case x.Repo != "":
			what = x.Repo
		case what == "":
			what = x.Report
		}
		if _, err := fmt.Fprintf(a.stdout(), "%-11s %s %d  %s  %s %s  by %s (%s): %s\n", x.ID, x.Axis, x.Level, state, x.Scope, clean(what), clean(x.By.Login), x.By.Assurance, clean(x.Reason)); err != nil {
			return err
		}
	}
	return nil
}

// describe says what an acceptance would be about.
func describe(q *task.AcceptRequest) []string {
	repo, span := "the one of the report", "8h, or what the policy allows"
	if q.Report != nil && q.Report.Repo != "" {
		repo = q.Report.Repo
	}
	if q.For > 0 {
		span = q.For.String()
	}
	scope := "the command of that report, and no other"
	switch q.Scope {
	case task.ScopeRepo:
		scope = "every command of every task on that repository with the same gap"
	case task.ScopeTask:
		scope = "every command of that task"
	}
	uses := "any number of times"
	if q.Uses > 0 {
		uses = fmt.Sprintf("%d times", q.Uses)
	}
	return []string{"report:     " + clipped(q.Ref), "repository: " + repo, "for:        " + scope, "how long:   " + span + ", " + uses, "reason:     " + q.Reason}
}
