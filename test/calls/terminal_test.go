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
