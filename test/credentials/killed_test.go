//go:build linux

package credentials

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestLoanKilled kills the supervisor at each step of a loan: nothing of it is
// left, and the record says that it is held no more.
func TestLoanKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program with fault points; not with -short")
	}
	bin := filepath.Join(filepath.Dir(harness.Bin()), "caisson-faults")
	if err := harness.Build(bin, "faults"); err != nil {
		t.Fatal(err)
	}
	one(t, func(p *place) {
		p.Write(p.t, p.Home+"/.config/api-token", apiSecret+"\n", 0o600)
		p.policy(apiPolicy)
		do := func(env string, args ...string) harness.Result {
			cmd := p.Command(p.t.Context(), p.repo, bin, args...)
			cmd.Env = append(cmd.Env, env)
			return harness.Run(p.t, cmd)
		}
		for _, at := range []string{"lend.noted", "lend.read", "lend.used", "lend.back"} {
			r := do("CAISSON_FAULT="+at+":kill", "open", "--name", at, "--lend", "api", "--allow", "git.test:443")
			if r.Exit != 0 {
				p.t.Fatal(r)
			}
			taken()
			r = do("X=", "exec", at, "--", "bash", "-c", curl+`-H "Authorization: Bearer $API_TOKEN" https://git.test/api/mine`)
			if got := taken(); spelled(got) != (at == "lend.back") {
				p.t.Errorf("%s: the server saw %q, the caller %v", at, got, r)
			}
			if at == "lend.back" {
				do("X=", "close", at)
			}
			id := ""
			p.eventually(at, "the task is put in order", func() bool {
				do("X=", "reap")
				v := harness.Decode[struct {
					ID, State string
					Resources []struct{ Kind, State string }
				}](p.t, do("X=", "show", "--json", at).Stdout)
				for _, r := range v.Resources {
					if r.Kind == "loan" && r.State != "gone" {
						return false
					}
				}
				id = v.ID
				return v.State == "kept" || v.State == "closed"
			})
			if _, err := evidence.Verify(filepath.Join(p.State, "tasks", id, "evidence"), evidence.Head{}); err != nil {
				p.t.Errorf("%s: the record: %v", at, err)
			}
			log := do("X=", "log", "--json", id).Stdout
			if strings.Count(log, `"type":"credential.lent"`) != 1 || !strings.Contains(log, `"type":"credential.back"`) {
				p.t.Errorf("%s: on record is\n%s", at, log)
			}
			p.nowhere(id)
		}
	})
}
