package boundary

import "testing"

// TestNamesTask: a process in a task's control group is known by its name as the
// kernel tells it, one outside is not.
func TestNamesTask(t *testing.T) {
	for groups, want := range map[string]bool{
		"4:pids:/caisson-3qe3ta4e-totby47ejzk-lwvvxmoz\n0::/user.slice\n":                                          true,
		"3:memory:/process_api/c0fc7b50/caisson-3qe3ta4e-totby47ejzk-lwvvxmoz\n":                                   true,
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/caisson-3qe3ta4e-totby47ejzk-lwvvxmoz.scope\n": true,
		"0::/caisson-3qe3ta4e-totby47ejzk-lwvvxmoz/inner\n":                                                        true,
		"0::/user.slice/user-1000.slice/session-2.scope\n":                                                         false,
		"0::/system.slice/caisson-ci.service\n":                                                                    false,
		"0::/caisson-trial-12-34-56-abcdefgh\n":                                                                    false,
		"":                                                                                                         false,
	} {
		if got := namesTask(groups); got != want {
			t.Errorf("%q: %v", groups, got)
		}
	}
}
