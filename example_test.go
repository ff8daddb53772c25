//go:build linux

//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

package caisson_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson"
)

func TestMain(m *testing.M) {
	caisson.Main()
	os.Exit(inFolder(m))
}

// project is a repository with one file, for the examples.
var project string

// inFolder runs the tests with folders of their own.
func inFolder(m *testing.M) int {
	dir, err := os.MkdirTemp("", "goapi-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for k, v := range map[string]string{"CAISSON_STATE_DIR": dir + "/state", "CAISSON_RUNTIME_DIR": dir + "/run", "HOME": dir + "/home", "GIT_CONFIG_NOSYSTEM": "1"} {
		if err := os.Setenv(k, v); err != nil {
			panic(err)
		}
	}
	project = filepath.Join(dir, "project")
	script := `set -e; mkdir home project; cd project; git init -q -b main; printf 'one\n' >file.txt; git add -A
git -c user.name=t -c user.email=t@example.org commit -q -m first`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Sprint(err, string(out)))
	}
	return m.Run()
}

// A task, a call, what it changed, the end.
func Example() {
	ctx := context.Background()
	t, err := caisson.Open(ctx, caisson.Options{Dir: project, Keep: "never"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer t.Close()
	res, err := t.Call(ctx, "shell", map[string]any{"command": "sed -i s/one/two/ file.txt; cat file.txt"})
	if err != nil {
		fmt.Println(err)
		return
	}
	var out struct{ Stdout string }
	_ = json.Unmarshal(res.Claimed.Result, &out)
	fmt.Print(out.Stdout)

	var patch bytes.Buffer
	_ = t.Diff(ctx, &patch)
	fmt.Println(strings.Contains(patch.String(), "-one\n+two\n"))
	rep, err := t.Close()
	fmt.Println(rep.State, len(rep.Rescued) > 0, err)
	// Output:
	// two
	// true
	// closed true <nil>
}

// Output that is handed on as it is written.
func ExampleTask_Stream() {
	ctx := context.Background()
	t, err := caisson.Open(ctx, caisson.Options{Dir: project, Keep: "never"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer t.Close()
	_, err = t.Stream(ctx, "shell", map[string]any{"argv": []string{"printf", "a line\n"}}, func(stream string, p []byte) {
		fmt.Printf("%s: %s", stream, p)
	})
	fmt.Println(err)
	// Output:
	// stdout: a line
	// <nil>
}

// A child task has at most its parent's authority, and ends with it.
func ExampleOptions_parent() {
	ctx := context.Background()
	parent, err := caisson.Open(ctx, caisson.Options{Dir: project, Keep: "never", Limits: caisson.Limits{MemoryBytes: 512 << 20}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer parent.Close()
	_, err = caisson.Open(ctx, caisson.Options{Dir: project, Parent: parent.ID(), Limits: caisson.Limits{MemoryBytes: 1 << 30}})
	fmt.Println("more than its parent:", caisson.CodeOf(err))

	child, err := caisson.Open(ctx, caisson.Options{Dir: project, Parent: parent.ID(), Keep: "never"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer child.Close()
	_, err = child.Call(ctx, "write_file", map[string]any{"path": "part.txt", "content": "a part of the work\n"})
	fmt.Println("work of the child:", err)

	_, err = parent.Close()
	<-child.Done()
	rep, _ := child.Close()
	fmt.Println("both have ended:", err, rep.State, len(rep.Rescued) > 0)
	// Output:
	// more than its parent: denied
	// work of the child: <nil>
	// both have ended: <nil> closed true
}

// A person is asked about some calls.
func ExampleOptions_approve() {
	ctx := context.Background()
	t, err := caisson.Open(ctx, caisson.Options{
		Dir: project, Keep: "never", Ask: []string{"shell:*rm *"},
		Approve: func(_ context.Context, q caisson.Question) caisson.Answer {
			// A real program shows q to somebody.
			return caisson.Answer{Allow: !strings.Contains(q.Script, "-rf"), Reason: "not everything"}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer t.Close()
	for _, command := range []string{"ls", "rm file.txt", "rm -rf ."} {
		res, err := t.Call(ctx, "shell", map[string]any{"command": command})
		if err != nil {
			fmt.Println(command+":", caisson.CodeOf(err)+":", err)
			continue
		}
		fmt.Println(command+":", res.Verdict)
	}
	// Output:
	// ls: allow
	// rm file.txt: ask
	// rm -rf .: denied: a person denied shell: not everything
}
