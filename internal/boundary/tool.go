package boundary

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

const toolSchema = "caisson.tool/1"

const (
	// maxCalls bounds the tool calls of one task that wait or run.
	maxCalls = 256
	// fileTime bounds a call of a file tool.
	fileTime = 2 * time.Minute
	// beat is how often a caller hears of a call that waits or runs; clients give
	// up after thirty seconds of silence.
	beat = 10 * time.Second
)

var _ = sys.RegisterFaults("tool.before-intent", "tool.after-intent", "tool.carried", "tool.before-outcome")

// toolCall is one call on its way.
type toolCall struct {
	id, tool  string
	where     contract.Where
	args      any
	canonical []byte // args in canonical form, as the worker gets them
	digest    string
	refused   []string
	begun     time.Time
	by        door.Actor
	o         door.ToolOptions

	file *os.File // the whole of what a result has a part of, until somebody takes it

	over func() // ends the call's turn, nil without one

	consulted []consulted // decision hooks

	argv  []string // of a program
	dir   string
	names []string // paths that the call names, absolute inside
	wants []string // destinations that it asks for
}

// Tool implements door.Engine.
func (m *Manager) Tool(ctx context.Context, ref string, c task.ToolCall, o door.ToolOptions) (*task.ToolResult, error) {
	// Whoever holds the task passes its id; spare it the database.
	l := m.lookup(task.ID(ref))
	if l == nil {
		t, err := m.find(ctx, ref)
		if err != nil {
			return nil, err
		}
		if l = m.lookup(t.ID()); l == nil {
			if t.View.State != task.Ready {
				return nil, notReady(t.View)
			}
			if err := m.answerable(ctx, t); err != nil {
				return nil, err
			}
			return m.cfg.Remote(t.ID()).Tool(ctx, c, o)
		}
	}
	return m.tool(ctx, l, c, o)
}

// tool makes one call in a live boundary: decode, verdict, intent, call, outcome.
func (m *Manager) tool(ctx context.Context, l *live, c task.ToolCall, o door.ToolOptions) (*task.ToolResult, error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.calls.Done()
	if err := l.tools.enter(); err != nil {
		return nil, err
	}
	defer l.tools.leave()
	k, err := l.newCall(c, o)
	if err != nil {
		// Also what makes no sense is on record, without what it said.
		sum := sha256.Sum256(c.Args)
		who := (&toolCall{by: o.By}).actor()
		_, lerr := l.log.AppendBulk(context.WithoutCancel(ctx), evidence.ToolRefused, who, map[string]any{"tool": short(c.Tool, 60), "arguments_sha256": hex.EncodeToString(sum[:]), "arguments_bytes": len(c.Args),
			"code": string(task.CodeOf(err)), "error": short(err.Error(), 500)})
		if lerr != nil {
			err = errors.Join(err, lerr)
		}
		return nil, err
	}
	res := &task.ToolResult{Schema: toolSchema, Task: l.id, Call: k.id, Tool: k.tool, Digest: k.digest, Refused: k.refused}
	defer func() { k.endTurn(err) }()
	defer func() {
		switch {
		case k.file == nil:
		case err == nil && k.o.File != nil:
			k.o.File(k.file)
		default:
			_ = k.file.Close() // whoever wants it reads on
		}
	}()
	if err := m.mayBegin(ctx, l, false); err != nil {
		return res, m.refuseErr(ctx, l, k, res, err)
	}
	if err = m.permit(ctx, l, k, res); err == nil {
		err = m.takeTurn(ctx, l, k, res)
	}
	if err != nil {
		return res, err
	}
	if ctx.Err() != nil {
		return res, m.refuse(ctx, l, k, res, task.Errorf(task.CodeCanceled, "tool", "not started: %w", context.Cause(ctx)))
	}
	// Nothing happens that is not announced. What only reads has no effect but its
	// answer, and that is given when announcement and outcome are durable: the
	// outcome's fsync does for both.
	announce := l.log.Append
	if k.reads() && !k.tells() {
		announce = l.log.AppendBulk
	}
	if err := sys.Fault("tool.before-intent"); err != nil {
		return res, err
	}
	switch _, err := announce(ctx, evidence.ToolIntent, k.actor(), k.intent(res)); {
	case task.CodeOf(err) == task.CodeCanceled: // since it was asked above
		return res, m.refuse(ctx, l, k, res, task.Errorf(task.CodeCanceled, "tool", "not started: %w", context.Cause(ctx)))
	case err != nil:
		return res, err
	}
	if err := sys.Fault("tool.after-intent"); err != nil {
		return res, err
	}
	stop := k.beats("has been running")
	k.begun = time.Now()
	res.Observed.Begun = k.begun.UTC()
	sum, err := m.carryOut(ctx, l, k, res)
	res.Observed.Duration = time.Since(k.begun)
	stop()
	if ferr := sys.Fault("tool.carried"); ferr != nil {
		return res, errors.Join(err, ferr)
	}
	l.sawAfter(k, res)
	if oerr := m.toolOutcome(ctx, l, k, res, sum, err); oerr != nil {
		if k.reads() {
			res.Claimed = task.Claimed{} // its effect: it does not happen
		}
		err = errors.Join(err, oerr)
	}
	return res, err
}

// newCall decodes a call. What it cannot be is refused before anything is done.
func (l *live) newCall(c task.ToolCall, o door.ToolOptions) (*toolCall, error) {
	args, refused, err := contract.Decode(c.Tool, c.Args)
	if err != nil {
		return nil, badCall(c.Tool, err)
	}
	t, _ := contract.Lookup(c.Tool)
	k := &toolCall{id: "c" + task.NewToken()[:12], tool: c.Tool, where: t.Where, args: args, refused: refused, by: o.By, o: o, begun: time.Now()}
	if err := l.target(k); err != nil {
		return nil, err
	}
	if err := k.render(); err != nil {
		return nil, err
	}
	h := sha256.New()
	for _, part := range []string{string(l.id), k.tool, string(k.canonical)} {
		// A length before each, so that no two calls give one text.
		_ = json.NewEncoder(h).Encode(len(part))
		h.Write([]byte(part))
	}
	k.digest = hex.EncodeToString(h.Sum(nil))
	return k, nil
}

// render writes the arguments down as they are now, for digest and worker.
func (k *toolCall) render() (err error) {
	if k.canonical, err = contract.Canonical(k.args); err != nil {
		return task.Errorf(task.CodeInternal, "tool", "the arguments of %s cannot be written down: %v", k.tool, err)
	}
	return nil
}

// badCall is the error of a call that makes no sense.
func badCall(tool string, err error) error {
	var f *contract.Failure
	if !errors.As(err, &f) {
		return task.Errorf(task.CodeInternal, "tool", "%s: %v", tool, err)
	}
	code := task.CodeUsage
	switch f.Code {
	case contract.NotFound:
		code = task.CodeNotFound
	case contract.TooBig:
		code = task.CodeLimit
	}
	e := task.Errorf(code, "tool", "%s", f.Msg).WithHint("`caisson tools` lists the tools and their arguments")
	e.Detail = &task.ToolFailure{Code: string(f.Code), Message: f.Msg}
	return e
}

// target finds out what the call is about: the program, the paths.
func (l *live) target(k *toolCall) error {
	switch a := k.args.(type) {
	case *contract.ReadFileArgs:
		k.names = []string{l.inside(a.Path)}
	case *contract.WriteFileArgs:
		k.names = []string{l.inside(a.Path)}
	case *contract.EditFileArgs:
		k.names = []string{l.inside(a.Path)}
	case *contract.NotebookEditArgs:
		k.names = []string{l.inside(a.Path)}
	case *contract.ListDirArgs:
		k.names = []string{l.inside(a.Path)}
	case *contract.GlobArgs:
		k.names = []string{l.inside(a.Path)}
	case *contract.GrepArgs:
		k.names = []string{l.inside(a.Path)}
	case *contract.PublishArtifactArgs:
		k.names = []string{l.inOut(a.Path)}
	case *contract.ShellArgs:
		return l.program(k, a)
	case *contract.InstallDependenciesArgs:
		return l.installer(k, a)
	case *contract.FetchArgs:
		return fetchable(k, a)
	case *contract.RequestAccessArgs:
		return l.access(k, a)
	}
	return nil
}

// inside is a path as the inside names it.
func (l *live) inside(p string) string {
	if !filepath.IsAbs(p) {
		p = filepath.Join(l.spec.Source.Target, p)
	}
	return filepath.Clean(p)
}

// call is what policy gets to know.
func (l *live) policyCall(k *toolCall, unsure bool) policy.Call {
	c := policy.Call{Proved: true, Unattended: l.unattended, Tool: k.tool, Unsure: unsure, Point: l.point(k)}
	for _, p := range k.names {
		c.Subjects = append(c.Subjects, p)
		if rel, ok := strings.CutPrefix(p, l.spec.Source.Target+"/"); ok {
			c.Subjects = append(c.Subjects, rel)
		}
	}
	switch a := k.args.(type) {
	case *contract.ShellArgs:
		c.Subjects = append(c.Subjects, commandText(a))
	case *contract.ShellInputArgs:
		c.Subjects = append(c.Subjects, a.Text)
	case *contract.FetchArgs:
		c.Subjects = append(c.Subjects, a.URL)
	case *contract.RequestAccessArgs:
		c.Subjects = append(c.Subjects, k.wants...)
	}
	return c
}

// refuse puts on record that nothing was done, and returns why.
func (m *Manager) refuse(ctx context.Context, l *live, k *toolCall, res *task.ToolResult, why *task.Error) error {
	dctx, done := sys.Detach(ctx, time.Minute)
	defer done()
	body := k.intent(res)
	res.Observed.Begun = k.begun.UTC() // when it was asked for
	body["code"], body["error"] = string(why.Code), why.Error()
	if _, err := l.log.Append(dctx, evidence.ToolRefused, k.actor(), body); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// refuseErr is refuse for an error from elsewhere.
func (m *Manager) refuseErr(ctx context.Context, l *live, k *toolCall, res *task.ToolResult, err error) error {
	var why *task.Error
	if errors.As(err, &why) {
		return m.refuse(ctx, l, k, res, why)
	}
	return err
}

// actor is who an event of the call is attributed to.
func (k *toolCall) actor() evidence.Actor {
	return evidence.Actor{Kind: k.by.Role.String(), ID: k.by.Door}
}

// intent is what goes on record of a call before it is made: never the content
// of a file, never the value of a variable.
func (k *toolCall) intent(res *task.ToolResult) map[string]any {
	body := map[string]any{"call": k.id, "tool": k.tool, "digest": k.digest, "verdict": res.Verdict, "rule": res.Rule}
	if len(k.refused) > 0 {
		body["refused"] = k.refused
	}
	if len(k.consulted) > 0 {
		body["decision_hooks"] = k.consulted
	}
	if res.Approval != "" {
		body["approval"] = res.Approval
	}
	if len(k.names) > 0 {
		body["paths"] = k.names
	}
	switch a := k.args.(type) {
	case *contract.ShellArgs:
		body["argv"], body["dir"], body["tty"], body["background"] = shortened(k.argv), k.dir, a.PTY, a.Background
		body["env"], body["stdin_bytes"] = keys(a.Env), len(a.Stdin)
	case *contract.InstallDependenciesArgs:
		body["argv"] = shortened(k.argv)
	case *contract.GlobArgs:
		body["pattern"] = short(a.Pattern, 1000)
	case *contract.GrepArgs:
		body["pattern"], body["glob"] = short(a.Pattern, 1000), short(a.Glob, 1000)
	case *contract.WriteFileArgs:
		body["bytes"] = len(a.Content)
	case *contract.EditFileArgs:
		body["edits"] = len(a.Edits)
	case *contract.NotebookEditArgs:
		body["mode"], body["cell"] = a.Mode, a.CellID
	case *contract.ShellOutputArgs:
		body["shell"] = a.Shell
	case *contract.ShellInputArgs:
		body["shell"], body["bytes"] = a.Shell, len(a.Text)
	case *contract.ShellKillArgs:
		body["shell"] = a.Shell
	case *contract.FetchArgs:
		// Secrets stand in queries.
		at, _, _ := strings.Cut(a.URL, "?")
		body["url"] = short(at, 1000)
	case *contract.RequestAccessArgs:
		body["wants"], body["reason"] = k.wants, short(a.Reason, contract.MaxReason)
	}
	addAsked(body, k.args)
	return body
}

// toolOutcome puts on record how it ended, on both sides of the boundary apart.
func (m *Manager) toolOutcome(ctx context.Context, l *live, k *toolCall, res *task.ToolResult, sum map[string]any, cause error) error {
	said := claimedBody(&res.Claimed)
	addSaid(said, k.tool, &res.Claimed)
	body := map[string]any{"call": k.id, "tool": k.tool, "observed": observedBody(&res.Observed), "claimed": said}
	for key, v := range sum {
		body[key] = v
	}
	if cause != nil {
		body["error"], body["code"] = cause.Error(), string(task.CodeOf(cause))
	}
	dctx, done := sys.Detach(ctx, time.Minute)
	defer done()
	err := sys.Fault("tool.before-outcome")
	if err == nil {
		_, err = l.log.Append(dctx, evidence.ToolOutcome, self, body)
	}
	if err != nil {
		return task.Errorf(task.CodeOf(err), "tool", "%s was carried out, which could not be recorded: %w", k.tool, err)
	}
	return nil
}

func observedBody(o *task.Observed) map[string]any {
	b := map[string]any{"duration_ms": o.Duration.Milliseconds()}
	if o.Exit != nil {
		b["exit"], b["signal"] = *o.Exit, o.Signal
	}
	if o.Reason != "" {
		b["reason"] = o.Reason
	}
	if o.StdoutBytes+o.StderrBytes > 0 {
		b["stdout_bytes"], b["stderr_bytes"] = o.StdoutBytes, o.StderrBytes
	}
	if len(o.Files) > 0 {
		b["files"] = o.Files
	}
	return b
}

// claimedBody is what was said inside, without the contents.
func claimedBody(c *task.Claimed) map[string]any {
	b := map[string]any{}
	if c.Exit != nil {
		b["exit"], b["signal"] = *c.Exit, c.Signal
	}
	if c.Failure != nil {
		b["failure"] = map[string]any{"code": c.Failure.Code, "message": short(c.Failure.Message, 1000)}
	}
	if len(c.Result) > 0 {
		sum := sha256.Sum256(c.Result)
		b["result_bytes"], b["result_sha256"] = len(c.Result), hex.EncodeToString(sum[:])
	}
	return b
}

// beats tells the caller at regular times that the call is not forgotten.
func (k *toolCall) beats(what string) (stop func()) {
	if k.o.Progress == nil {
		return func() {}
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	begun := time.Now()
	go func() {
		defer close(gone)
		t := time.NewTicker(beat)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				k.o.Progress(k.tool + " " + what + " (" + time.Since(begun).Round(time.Second).String() + ")")
			}
		}
	}()
	return func() { close(quit); <-gone }
}

// carryOut does what was asked for. sum is more for the record.
func (m *Manager) carryOut(ctx context.Context, l *live, k *toolCall, res *task.ToolResult) (sum map[string]any, err error) {
	var out any
	switch a := k.args.(type) {
	case *contract.ShellArgs:
		if a.Background {
			out, err = m.startShell(ctx, l, k, a)
		} else {
			out, sum, err = m.runShell(ctx, l, k, a, res)
		}
	case *contract.ShellOutputArgs:
		out, err = l.tools.output(ctx, a)
	case *contract.ShellInputArgs:
		out, err = l.tools.input(ctx, a)
	case *contract.ShellKillArgs:
		out, err = l.tools.kill(ctx, a)
	case *contract.ShellListArgs:
		out = l.tools.list()
	case *contract.PublishArtifactArgs:
		out, err = m.publish(ctx, l, k, a)
	case *contract.InstallDependenciesArgs:
		out, sum, err = m.installTool(ctx, l, k, res)
	case *contract.FetchArgs:
		out, err = m.fetchTool(ctx, l, a)
	case *contract.RequestAccessArgs:
		out, err = m.widenTool(ctx, l, k, res)
	default:
		return nil, m.fileTool(ctx, l, k, res)
	}
	if f := (*contract.Failure)(nil); errors.As(err, &f) {
		res.Claimed.Failure = &task.ToolFailure{Code: string(f.Code), Message: f.Msg}
		return sum, nil
	}
	if out != nil {
		b, jerr := json.Marshal(out)
		if jerr != nil {
			return sum, errors.Join(err, task.Errorf(task.CodeInternal, "tool", "the result of %s: %v", k.tool, jerr))
		}
		res.Claimed.Result = b
	}
	return sum, err
}

// short cuts a text for the record.
func short(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// shortened is an argument vector for the record, which has a longest line.
func shortened(argv []string) []string {
	const most, each = 200, 16 << 10
	out := make([]string, 0, min(len(argv), most))
	room := 256 << 10
	for _, a := range argv {
		if len(out) == most || room <= 0 {
			return append(out, "…")
		}
		a = short(a, each)
		room -= len(a)
		out = append(out, a)
	}
	return out
}
