package boundary

import (
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

func TestPolicyShortensRetention(t *testing.T) {
	for _, c := range []struct{ policy, want time.Duration }{{0, keepTime}, {time.Hour, time.Hour}, {72 * time.Hour, keepTime}} {
		d := &decided{rules: policy.Governing{Rules: &policy.Rules{}}}
		if c.policy > 0 {
			d.rules.Rules.Retention.Environments = policy.Set[policy.Duration]{Value: policy.Duration(c.policy), From: policy.Origin{Source: task.SourceUser}}
		}
		if got := keepsFor(inventory.Task{View: task.View{KeepFor: d.keepFor()}}); got != c.want {
			t.Errorf("with %s files stay for %s, want %s", c.policy, got, c.want)
		}
	}
}

func TestRiskyFilesOfPolicy(t *testing.T) {
	match := matching([]string{"**/n8", "Deploy/**"})
	for name, want := range map[string]bool{"n8": true, "a/b/n8": true, "n80": false, "Deploy/x/y": true, "deploy/x": true, "a/deploy/x": false} {
		if match(name) != want {
			t.Errorf("%s: %v, want %v", name, !want, want)
		}
	}
	if matching(nil)("a") {
		t.Error("no pattern means a file")
	}
}

func TestDeclaredServicesAreNotThere(t *testing.T) {
	k := &known{rules: policy.Governing{Rules: &policy.Rules{}}}
	if l, _ := k.services(); l != task.LevelNA {
		t.Errorf("without services: %d", l)
	}
	k.rules.Rules.Services = []policy.ServiceFrom{{Name: "db"}}
	if l, why := k.services(); l != 0 || why == "" {
		t.Errorf("declared: %d, %q", l, why)
	}
}
