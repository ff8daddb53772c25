//go:build linux

package calls

import (
	"os"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestApproveAtTerminal answers at a terminal, as questions come. Only a word
// that says so is a yes, and only one that was typed after the question was shown.
func TestApproveAtTerminal(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id, "--ask", "shell:*danger*")
		s := harness.OnTerminal(t, id.Command(t.Context(), c.repo, harness.Bin(), "approve", "--watch"), id.UID)
		s.Expect("waiting for questions")
		s.Type("y\ny\n") // nothing was asked
		for _, step := range []struct{ word, want string }{{"", "a person denied"}, {"yes", ""}, {"maybe", "a person denied"}, {"n", "a person denied"}, {"e", ""}, {"same", ""}, {"t", ""}, {"any", ""}} {
			args := contract.ShellArgs{Command: "echo danger\x1b[2J " + step.word}
			if step.word == "same" { // as the person said of it
				args.Command = "echo danger\x1b[2J e"
			}
			if step.word == "same" || step.word == "any" {
				sh(c, args)
				continue
			}
			p := asks(c, contract.Shell, args)
			s.Expect(p.q.ID)
			s.Expect(`danger\x1b[2J ` + step.word)
			s.Expect("[y/N/e/t] ")
			s.Type(step.word + "\n")
			p.is("answer "+step.word, <-p.done, step.want)
		}
		s.Type("\x03")
		s.Wait()
	})
}

// TestAnsweredElsewhere answers through another door while the question stands at
// a terminal: the prompt goes, the person is told, and what was typed by then is no
// answer to the next question.
func TestAnsweredElsewhere(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id, "--ask", "shell:*danger*")
		s := harness.OnTerminal(t, id.Command(t.Context(), c.repo, harness.Bin(), "approve", "--watch"), id.UID)
		s.Expect("waiting for questions")
		for _, step := range []struct{ typed, verb, want string }{{"", "approve", ""}, {"ye", "deny", "a person denied"}, {"y", "approve", ""}} {
			p := asks(c, contract.Shell, contract.ShellArgs{Command: "echo danger " + step.verb})
			s.Expect("[y/N/e/t] ")
			s.Type(step.typed)
			id.OK(t, c.repo, step.verb, p.q.ID)
			p.is(step.verb+" elsewhere", <-p.done, step.want)
			s.Expect("\r\x1b[1A\x1b[J") // the prompt is longer than a line
			s.Expect(p.q.ID + " needs no answer any more: it was answered elsewhere")
		}
		for _, step := range []struct{ typed, want string }{{"\n", "a person denied"}, {"es\n", "a person denied"}, {"yes\n", ""}} {
			p := asks(c, contract.Shell, contract.ShellArgs{Command: "echo danger here"})
			s.Expect("[y/N/e/t] ")
			s.Type(step.typed)
			p.is("answer here "+step.typed, <-p.done, step.want)
		}
		s.Type("\x03")
		s.Wait()
	})
}

// TestApproveAtMCPTerminal has `caisson mcp --approve-tty` ask at its terminal
// while its client has its input and output.
func TestApproveAtMCPTerminal(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "tty", os.Getuid())
	c := newCaller(t, id, "--ask", "shell:*danger*")
	const client = `{
echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}'
echo '{"jsonrpc":"2.0","method":"notifications/initialized"}'
echo '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"shell","arguments":{"command":"echo danger >made"}}}'
while [ ! -e answered ]; do sleep 0.05; done; } | "$0" mcp --task "$1" --approve-tty 2>notes | while read -r l; do case $l in *'"id":2'*) echo "$l" >answered.new; mv answered.new answered;; esac; done
cat answered notes`
	s := harness.OnTerminal(t, id.Command(t.Context(), c.repo, "sh", "-c", client, harness.Bin(), c.task), id.UID)
	s.Expect("echo danger >made")
	s.Expect("[y/N/e/t] ")
	s.Type("y\n")
	s.Expect(`"exit":0`)
	s.Wait()
}
