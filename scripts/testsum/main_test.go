package main

import (
	"strings"
	"testing"
)

func TestSummarize(t *testing.T) {
	in := strings.Join([]string{
		`{"Action":"output","Package":"m/caisson/a","Test":"TestS","Output":"=== RUN   TestS\n"}`,
		`{"Action":"output","Package":"m/caisson/a","Test":"TestS","Output":"    a_test.go:3: needs root: or else\n"}`,
		`{"Action":"output","Package":"m/caisson/a","Test":"TestS","Output":"--- SKIP: TestS (0.00s)\n"}`,
		`{"Action":"skip","Package":"m/caisson/a","Test":"TestS"}`,
		`{"Action":"pass","Package":"m/caisson/a","Test":"TestP"}`,
		`{"Action":"output","Package":"m/caisson/a","Test":"TestF","Output":"    a_test.go:9: broken\n"}`,
		`{"Action":"fail","Package":"m/caisson/a","Test":"TestF"}`,
		`{"Action":"output","Package":"m/caisson/a","Test":"TestKilled","Output":"=== RUN   TestKilled\n"}`,
		`{"Action":"output","Package":"m/caisson/a","Output":"FAIL\tm/caisson/a\t0.1s\n"}`,
		`{"Action":"fail","Package":"m/caisson/a"}`,
		`# m/caisson/b`,
	}, "\n")
	var out, skips strings.Builder
	n := summarize(strings.NewReader(in), &out, &skips, "root")
	if want := "root: a TestS: needs root: or else\n"; skips.String() != want {
		t.Errorf("skips %q, want %q", skips.String(), want)
	}
	if n != (totals{passed: 1, failed: 3, skipped: 1, packages: 1}) {
		t.Errorf("totals %+v", n)
	}
	for _, want := range []string{"broken", "FAIL\tm/caisson/a", "# m/caisson/b", "no verdict: m/caisson/a TestKilled"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "needs root") {
		t.Error("a skip is printed among the failures")
	}
}

func TestReasonNeverEmpty(t *testing.T) {
	if got := reason([]string{"=== RUN   TestX\n", "--- SKIP: TestX (0.00s)\n"}); got != "no reason printed" {
		t.Errorf("got %q", got)
	}
}
