package harness

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// Runtime is the program of a backend that is a runtime alone, empty where there is
// none. gVisor's is CAISSON_TEST_RUNSC.
func Runtime(backend string) string {
	if p := os.Getenv("CAISSON_TEST_RUNSC"); backend == "gvisor" && p != "" {
		return p
	}
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if p, err := exec.LookPath(dir + map[string]string{"gvisor": "runsc", "oci:crun": "crun", "oci:runc": "runc"}[backend]); err == nil {
			return p
		}
	}
	return ""
}

// needsRoot says of a backend that only root can use it.
func needsRoot(backend string) bool { return backend == "oci:crun" || backend == "oci:runc" }

// awaited is how long a runtime that is being built beside the tests is waited for.
const awaited = 10 * time.Minute

// NeedsRuntime skips a test where the runtime of a backend is not here.
func NeedsRuntime(t testing.TB, backend string) {
	t.Helper()
	p := Runtime(backend)
	for end := time.Now().Add(awaited); p != "" && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if _, err := os.Stat(p + ".building"); err != nil {
			break // scripts/test.sh takes that away when it is done
		}
	}
	if _, err := os.Stat(p); err != nil {
		t.Skipf("the runtime of the backend %s is not here (CAISSON_TEST_RUNSC names gVisor's)", backend)
	}
}
