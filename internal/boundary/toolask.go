package boundary

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/approval"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// askTime is how long a question waits where nobody says.
const askTime = 10 * time.Minute

// hookDoor is the door of answers that a person's own program gives.
const hookDoor = "hook"

// permit returns nil when the call may be made: policy allows it, or a person
// did. What was allowed then is what will be done.
func (m *Manager) permit(ctx context.Context, l *live, k *toolCall, res *task.ToolResult) error {
	if l.only {
		return m.refuse(ctx, l, k, res, task.Errorf(task.CodeDenied, "tool", "task %s was given for one trusted check alone, and has the boundary of one", l.id).
			WithHint("`caisson open` makes a task for tool calls"))
	}
	a := m.judge(ctx, l, k)
	res.Verdict, res.Rule = a.Verdict, a.String()
	var files []seen
	if res.Verdict == task.VerdictAsk || k.writes() {
		files = l.lookAll(k)
	}
	if k.writes() {
		res.Observed.Files = states(files)
	}
	if k.tool == contract.RequestAccess && res.Verdict != task.VerdictDeny {
		return m.permitAccess(ctx, l, k, res)
	}
	switch res.Verdict {
	case task.VerdictAllow:
		return nil
	case task.VerdictAsk:
		return m.ask(ctx, l, k, res, files)
	}
	return m.refuse(ctx, l, k, res, task.Errorf(task.CodeDenied, "tool", "%s is denied: %s", k.tool, res.Rule).
		WithHint("%s", whoChanges(a)))
}

// whoChanges says whose a rule is.
func whoChanges(a policy.Answer) string {
	if a.From.Where == "" {
		return "only a person can change the rules of a task, when it is opened"
	}
	return "the rule stands in " + a.From.Where + "; whoever may write there can change it, for tasks that are opened after that"
}

// ask has a person decide, and holds what is about to be done against what they
// decided on.
func (m *Manager) ask(ctx context.Context, l *live, k *toolCall, res *task.ToolResult, files []seen) error {
	if k.writes() && files[0].State == seenLink {
		return m.refuse(ctx, l, k, res, task.Errorf(task.CodeDenied, "tool", "%s leads through a link, so what a person allows could become another file", k.names[0]).
			WithHint("name the file itself"))
	}
	frozen := l.asking.Frozen && k.tool == contract.Shell
	if frozen {
		if why := noBackground(k); why != nil {
			return m.refuse(ctx, l, k, res, why)
		}
	}
	ctx, stop := l.while(ctx)
	defer stop()
	treeNow := ""
	if k.where == contract.Program {
		tell(k.o.Progress, "reading the task's files")
		var err error
		if treeNow, err = source.TreeNow(ctx, l.ws); err != nil {
			return m.refuse(ctx, l, k, res, task.Errorf(task.CodeOf(err), "tool", "the task's files cannot be read, so nobody can be asked about them: %w", err))
		}
	}
	bind := l.bindOf(k, files, treeNow)
	id := ""
	if k.tool != contract.RequestAccess { // of which each is for a person
		id = l.queue.Granted(k.tool, bind)
	}
	granted := id != ""
	if !granted {
		var err error
		if id, err = m.question(ctx, l, k, res, files, treeNow, bind); err != nil {
			return err
		}
	}
	if frozen {
		if why := m.alone(ctx, l, k); why != nil {
			m.void(ctx, l, k, id, why.Error())
			return m.refuse(ctx, l, k, res, why)
		}
	}
	if !granted || frozen {
		// Since the files were read there was time.
		if why := m.changed(ctx, l, k, files, treeNow); why != "" {
			m.void(ctx, l, k, id, why)
			return m.refuse(ctx, l, k, res, task.Errorf(task.CodeDenied, "tool", "what was allowed is not what would be done now: %s", why).
				WithHint("look at it and ask again"))
		}
	}
	res.Approval = id
	k.pin(files)
	if err := k.render(); err != nil {
		return err
	}
	if _, err := l.log.Append(ctx, evidence.ApprovalUsed, self, map[string]any{"question": id, "call": k.id, "digest": k.digest}); err != nil {
		return err
	}
	return nil
}

// bindOf is the digest of everything that an answer is bound to.
func (l *live) bindOf(k *toolCall, files []seen, treeNow string) string {
	if !l.asking.Frozen {
		treeNow = "" // shown, not demanded
	}
	idents := make([]string, 0, len(files))
	for _, s := range files {
		idents = append(idents, s.ident)
	}
	b, _ := json.Marshal(struct {
		Call, Plan, Dir, Tree string
		Argv                  []string
		Files                 []task.FileState
		Idents                []string
	}{k.digest, l.plan, k.dir, treeNow, k.argv, states(files), idents})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// question asks and waits. It returns the question's id once it is allowed.
func (m *Manager) question(ctx context.Context, l *live, k *toolCall, res *task.ToolResult, files []seen, treeNow, bind string) (string, error) {
	wait := l.asking.Wait
	if wait <= 0 {
		wait = askTime
	}
	now := time.Now()
	q := task.Question{
		ID: string(l.id) + "." + task.NewToken()[:6], Task: l.id, Name: l.name, Call: k.id, Digest: k.digest, Plan: l.plan, Actor: k.by.Role.String() + " through " + k.by.Door, Tool: k.tool, Rule: approval.Visible(res.Rule),
		Dir: approval.Visible(k.dir), Tree: treeNow, Diff: l.difference(k, files), Asked: now, Expires: now.Add(wait),
	}
	for _, s := range files {
		s.Path = approval.Visible(s.Path)
		q.Files = append(q.Files, s.FileState)
	}
	for _, a := range k.argv {
		q.Argv = append(q.Argv, approval.Visible(a))
	}
	if a, ok := k.args.(*contract.ShellArgs); ok && a.Command != "" {
		q.Script = approval.Lines(a.Command)
	}
	if len(k.wants) > 0 {
		// An answer for the rest of the task is one about this destination.
		q.Tool, q.Script = k.tool+" "+approval.Cut(strings.Join(k.wants, ", "), 500, ""), shownAccess(k)
	}
	body := k.intent(res)
	diff := sha256.Sum256([]byte(q.Diff))
	body["question"], body["plan"], body["files"], body["tree"], body["expires"], body["diff_sha256"] = q.ID, q.Plan, states(files), treeNow, q.Expires.UTC(), hex.EncodeToString(diff[:])
	if _, err := l.log.Append(ctx, evidence.ApprovalAsked, k.actor(), body); err != nil {
		return "", err
	}
	w := l.queue.Ask(q, k.by.Door, bind)
	wctx, done := context.WithCancel(ctx)
	defer done()
	m.hook(wctx, l, q)
	if k.o.Asked != nil {
		k.o.Asked(q)
	}
	stop := k.beats("waits for a person to answer " + q.ID)
	a, err := w.Wait(ctx)
	stop()
	if err != nil {
		m.void(ctx, l, k, q.ID, err.Error())
		code := task.CodeOf(err)
		return "", m.refuse(ctx, l, k, res, task.Errorf(code, "tool", "%v", err))
	}
	if !a.Allow {
		text := "a person denied " + k.tool
		if a.Reason != "" {
			text += ": " + approval.Visible(a.Reason)
		}
		return "", m.refuse(ctx, l, k, res, task.Errorf(task.CodeDenied, "tool", "%s", text))
	}
	return q.ID, nil
}

// void puts on record that an answer counts no more, or that none came.
func (m *Manager) void(ctx context.Context, l *live, k *toolCall, id, why string) {
	dctx, done := sys.Detach(ctx, time.Minute)
	defer done()
	if _, err := l.log.Append(dctx, evidence.ApprovalVoid, self, map[string]any{"question": id, "call": k.id, "why": why}); err != nil {
		m.cfg.Log("task " + string(l.id) + ": " + err.Error())
	}
}

// changed says what of the things that a person decided on is not as it was.
func (m *Manager) changed(ctx context.Context, l *live, k *toolCall, files []seen, treeNow string) string {
	now := l.lookAll(k)
	if len(now) != len(files) {
		return "other files are named by it now than when it was asked about"
	}
	for i := range now {
		if !now[i].same(&files[i]) {
			return fmt.Sprintf("%s was changed since it was asked about", approval.Visible(files[i].Path))
		}
	}
	if treeNow != "" && l.asking.Frozen {
		t, err := source.TreeNow(ctx, l.ws)
		if err != nil {
			return "the task's files cannot be read: " + err.Error()
		}
		if t != treeNow {
			return "the task's files were changed since it was asked about (--frozen)"
		}
	}
	return ""
}

// pin has the worker itself refuse when a file is not the one that was read.
func (k *toolCall) pin(files []seen) {
	if !k.writes() || len(files) != 1 {
		return
	}
	f := files[0]
	switch a := k.args.(type) {
	case *contract.WriteFileArgs:
		if f.State == seenAbsent && a.ExpectSHA256 == "" {
			a.CreateOnly = true
		} else if a.ExpectSHA256 == "" && !a.CreateOnly {
			a.ExpectSHA256 = f.SHA256
		}
	case *contract.EditFileArgs:
		if a.ExpectSHA256 == "" {
			a.ExpectSHA256 = f.SHA256
		}
	case *contract.NotebookEditArgs:
		if a.ExpectSHA256 == "" {
			a.ExpectSHA256 = f.SHA256
		}
	}
}

// difference shows what an edit would change, from the host's own reading.
func (l *live) difference(k *toolCall, files []seen) string {
	if !k.writes() || len(files) != 1 {
		return ""
	}
	f, name := files[0], k.names[0]
	before := string(f.text)
	known := f.State == seenAbsent || f.State == seenFile && f.Size <= maxShown
	switch a := k.args.(type) {
	case *contract.WriteFileArgs:
		if a.Encoding == "base64" {
			return fmt.Sprintf("%d bytes of base64, which are not shown\n", len(a.Content))
		}
		if !known {
			before = ""
		}
		return approval.Diff(name, before, a.Content)
	case *contract.EditFileArgs:
		var out strings.Builder
		for _, e := range a.Edits {
			after, ok := applied(before, e)
			if !known || !ok {
				// Where it would be cannot be told; what it is can.
				out.WriteString(approval.Diff(name, e.Old, e.New))
				continue
			}
			out.WriteString(approval.Diff(name, before, after))
			before = after
		}
		return out.String()
	case *contract.NotebookEditArgs:
		cell := a.CellID
		if a.Index != nil {
			cell = fmt.Sprint("number ", *a.Index)
		}
		return approval.Visible(fmt.Sprintf("%s of cell %s", cmpMode(a.Mode), cell)) + "\n" + approval.Diff(name, "", a.Source)
	}
	return ""
}

func cmpMode(mode string) string {
	if mode == "" {
		return "replace"
	}
	return mode
}

// applied is a text after one edit, where it is as plain as it looks.
func applied(text string, e contract.Edit) (string, bool) {
	n := strings.Count(text, e.Old)
	switch {
	case n == 0:
		return text, false
	case e.All:
		return strings.ReplaceAll(text, e.Old, e.New), true
	case e.Occurrence > n, e.Occurrence == 0 && n != 1:
		return text, false
	}
	at := 0
	for range max(1, e.Occurrence) - 1 {
		at += strings.Index(text[at:], e.Old) + len(e.Old)
	}
	at += strings.Index(text[at:], e.Old)
	return text[:at] + e.New + text[at+len(e.Old):], true
}

// hook has a program of the person's answer, beside every other door.
func (m *Manager) hook(ctx context.Context, l *live, q task.Question) {
	if l.asking.Hook == "" || m.cfg.Hook == nil {
		return
	}
	l.hooks.Go(func() {
		a, ok, err := m.cfg.Hook(ctx, l.asking.Hook, q)
		if ctx.Err() != nil {
			return
		}
		if err == nil && ok {
			a.ID, a.Digest = q.ID, q.Digest
			_, err = m.answer(ctx, l, hookDoor, a)
		}
		if err != nil {
			m.cfg.Log("task " + string(l.id) + ": the program that answers questions: " + err.Error())
		}
	})
}

// checkAsking refuses rules that could never count: a person who mistypes a
// tool's name must not believe that it is denied.
func checkAsking(a *task.Asking) error {
	for _, r := range a.Rules {
		if r.Verdict != task.VerdictAsk && r.Verdict != task.VerdictDeny {
			return task.Errorf(task.CodeUsage, "plan", "a rule about tools can ask or deny, not %q", r.Verdict)
		}
		if !slices.ContainsFunc(contract.Tools, func(t contract.Tool) bool { return policy.Match(r.Tool, t.Name) }) {
			return task.Errorf(task.CodeUsage, "plan", "%s: no tool has that name", r).WithHint("`caisson tools` lists them")
		}
	}
	if a.Wait < 0 {
		return task.Errorf(task.CodeUsage, "plan", "a question cannot wait for less than no time")
	}
	return nil
}
