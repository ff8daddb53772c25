package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// room says what the packages at and below a folder may import of ours. The
// longest matching folder rules. Packages of one room may import each other.
type room struct {
	dir   string
	may   []string // a folder; with "/..." also everything below it
	free  bool     // may import anything
	users []string // when set, only these folders may import the room
	child []string // of a seam: what each folder directly below may import; it is a room of its own
}

// vocabulary first, then the rooms that know it, then those that put rooms in order.
var rooms = []room{
	{dir: "internal/task"},
	{dir: "internal/sys"},
	{dir: "internal/version"},
	{dir: "internal/workerbin", may: []string{"internal/task"}},

	{dir: "internal/policy", may: []string{"internal/task"}},
	{dir: "internal/detect", may: []string{"internal/task"}},
	{dir: "internal/backend", may: []string{"internal/task"}, child: backendChild},
	{dir: "internal/service", may: []string{"internal/task"}, child: serviceChild},
	{dir: "internal/probe", may: []string{"internal/task", "internal/sys"}},

	{dir: "internal/source", may: []string{"internal/task", "internal/sys"}},
	{dir: "internal/evidence", may: []string{"internal/task", "internal/sys"}},
	{dir: "internal/inventory", may: []string{"internal/task", "internal/sys"}},
	{dir: "internal/approval", may: []string{"internal/task", "internal/sys"}},
	{dir: "internal/broker", may: []string{"internal/task", "internal/sys"}},
	{dir: "internal/egress", may: []string{"internal/task", "internal/sys"}},
	{dir: "internal/worker", may: []string{"internal/task", "internal/sys", "internal/probe", "internal/worker/contract"}},
	{dir: "internal/worker/contract"},                                                                    // shared by host and worker: nothing of ours
	{dir: "internal/worker/contract/schema", may: []string{"internal/task", "internal/worker/contract"}}, // host only

	{dir: "internal/backend/all", may: []string{"internal/backend/..."}},
	{dir: "internal/backend/backendtest", may: []string{"internal/task", "internal/sys", "internal/backend", "internal/worker"}},
	{dir: "internal/backend/internal", may: []string{"internal/task", "internal/sys", "internal/backend", "internal/worker/guest", "internal/worker/crossing"}},
	{dir: "internal/service/all", may: []string{"internal/service/..."}},

	{dir: "internal/audit", may: []string{"internal/task", "internal/sys", "internal/policy"}},
	{dir: "internal/boundary", may: []string{
		"internal/task", "internal/sys", "internal/policy", "internal/detect", "internal/backend", "internal/service", "internal/probe",
		"internal/source/...", "internal/evidence", "internal/inventory", "internal/approval", "internal/broker/...", "internal/egress", "internal/worker", "internal/worker/contract/...", "internal/worker/capture",
		"internal/door", // fulfils door.Engine; the contract alone, no child
	}},
	// Attacks boundaries from outside caisson, as a person would use it; the hostile
	// program itself knows nothing of ours but the words.
	{dir: "internal/verify", may: []string{"internal/task", "internal/sys", "internal/evidence", "internal/source/git", "internal/verify/attack", "internal/verify/far"}, users: []string{"cmd/caisson", "test"}},
	{dir: "internal/verify/far", may: []string{"internal/verify/attack"}, users: []string{"internal/verify"}},
	{dir: "internal/verify/attack", may: []string{"internal/task"}, users: []string{"cmd/caisson", "internal/verify", "internal/verify/far", "test"}},
	{dir: "internal/door", may: []string{"internal/task", "internal/approval", "internal/audit"}, child: doorChild},
	// The one door that renders what a tool answers, and so knows the answers.
	{dir: "internal/door/mcp", may: append([]string{"internal/worker/contract"}, doorChild...)},
	{dir: "internal/door/all", may: []string{"internal/door/..."}},
	{dir: "internal/config", may: []string{
		"internal/task", "internal/sys", "internal/policy", "internal/source", "internal/evidence",
		"internal/inventory", "internal/approval", "internal/broker", "internal/egress",
	}},

	{dir: "internal/wire", free: true, users: []string{"cmd/caisson", ".", "test"}},
	{dir: "cmd/caisson", free: true, users: []string{}},
	{dir: "internal/workerprog", may: workerParts, users: []string{"cmd/caisson", "cmd/caisson-worker", "internal/wire"}},
	{dir: "cmd/caisson-worker", may: append([]string{"internal/workerprog"}, workerParts...), users: []string{}},
	{dir: ".", may: []string{"internal/wire", "internal/task", "internal/door/..."}},
	{dir: "internal/archtest", users: []string{}},
	{dir: "bench", may: []string{".", "internal/task", "internal/backend/...", "internal/worker", "internal/policy", "internal/boundary"}, users: []string{}},
	{dir: "scripts/testsum", users: []string{}},
	{dir: "test", free: true, users: []string{}},
}

// A technology knows its contract and the channel, never a sibling.
var (
	backendChild = []string{"internal/task", "internal/sys", "internal/backend", "internal/backend/internal/...", "internal/worker", "internal/worker/guest", "internal/worker/crossing"}
	serviceChild = []string{"internal/task", "internal/sys", "internal/service"}
	doorChild    = []string{"internal/task", "internal/sys", "internal/door"}
)

// workerParts is all of ours that may be linked, also indirectly, into the
// program that stands inside a boundary.
var workerParts = []string{"internal/worker/inside/...", "internal/worker/frame/...", "internal/worker/mux", "internal/worker/guest", "internal/worker/crossing", "internal/worker/contract", "internal/worker/tools/...", "internal/probe/...", "internal/sys/...", "internal/task", "internal/backend/linux/stage/...", "internal/workerprog"}

// workerModules is all of others' that may be linked into it.
var workerModules = []string{"golang.org/x/sys"}

// roomOf returns the room that rules dir.
func roomOf(dir string) (room, bool) {
	var best room
	found := false
	for _, r := range rooms {
		if r.dir == "." && dir != "." {
			continue
		}
		if below(dir, r.dir) && (!found || len(r.dir) > len(best.dir)) {
			best, found = r, true
		}
	}
	if best.child != nil && dir != best.dir {
		first, _, _ := strings.Cut(strings.TrimPrefix(dir, best.dir+"/"), "/")
		return room{dir: best.dir + "/" + first, may: best.child}, true
	}
	return best, found
}

func allowed(list []string, dir string) bool {
	return slices.ContainsFunc(list, func(a string) bool {
		if up, ok := strings.CutSuffix(a, "/..."); ok {
			return below(dir, up)
		}
		return dir == a
	})
}

// checkImports holds every program file to the table of rooms.
func checkImports(tr *tree) (bad []string) {
	for p, f := range tr.program {
		r, ok := roomOf(p.dir)
		if !ok {
			bad = append(bad, fmt.Sprintf("%s: the folder is in no room; give it one in internal/archtest", p.dir))
			continue
		}
		for _, imp := range f.imports {
			dir, own := ours(imp)
			if !own {
				continue
			}
			target, ok := roomOf(dir)
			switch {
			case !ok || target.dir == r.dir:
			case target.users != nil && !slices.Contains(target.users, r.dir):
				bad = append(bad, fmt.Sprintf("%s: %s may not be imported here", f.path, dir))
			case !r.free && !allowed(r.may, dir):
				bad = append(bad, fmt.Sprintf("%s: room %s may not import %s", f.path, r.dir, dir))
			}
		}
	}
	return bad
}

// checkWorkerSmall follows the worker's imports to the end: a helper far away
// must not pull the command line or a database into every boundary.
func checkWorkerSmall(tr *tree) (bad []string) {
	byDir := map[string]*pkg{}
	for _, p := range tr.pkgs {
		byDir[p.dir] = p
	}
	seen := map[string]bool{}
	var walk func(dir string)
	walk = func(dir string) {
		if seen[dir] || byDir[dir] == nil {
			return
		}
		seen[dir] = true
		for _, f := range byDir[dir].files {
			if f.test {
				continue
			}
			for _, imp := range f.imports {
				if next, own := ours(imp); own {
					if !allowed(workerParts, next) {
						bad = append(bad, fmt.Sprintf("%s: %s would be linked into the worker", f.path, next))
						continue
					}
					walk(next)
				} else if foreign(imp) && moduleOf(imp, workerModules) == "" {
					bad = append(bad, fmt.Sprintf("%s: %s would be linked into the worker", f.path, imp))
				}
			}
		}
	}
	walk("cmd/caisson-worker")
	return bad
}

// outside says where a module of others may be imported in program files.
type outside struct {
	module string
	in     []string // folders, and everything below them; nil: nowhere but in tests
	not    []string // exact folders that may not, though below one of in
}

var outsiders = []outside{
	{module: "github.com/spf13/cobra", in: []string{"internal/door/cli"}},
	{module: "github.com/aws/aws-sdk-go-v2", in: []string{"internal/broker"}}, // signatures of AWS
	{module: "github.com/spf13/pflag", in: []string{"internal/door/cli"}},
	{module: "golang.org/x/term", in: []string{"internal/door/cli", "cmd/caisson"}},
	{module: "modernc.org/sqlite", in: []string{"internal/inventory"}},
	{module: "mvdan.cc/sh/v3", in: []string{"internal/detect"}},
	{module: "golang.org/x/text", in: []string{"internal/source"}},   // Unicode normalisation of file names
	{module: "golang.org/x/crypto", in: []string{"internal/broker"}}, // keys and messages of SSH
	{module: "golang.org/x/net", in: []string{"internal/egress"}},    // messages of DNS
	{module: "go.yaml.in/yaml/v4", in: []string{"internal/config", "internal/detect"}},
	{module: "github.com/google/jsonschema-go"}, // tests hold answers to announced schemas with it
	{module: "github.com/modelcontextprotocol/go-sdk", in: []string{"internal/door/mcp"}},
	{module: "github.com/rogpeppe/go-internal"},
	// System calls belong to rooms that do something; the vocabulary, the
	// decisions and the sequence stay free of them.
	{module: "golang.org/x/sys", in: []string{
		"internal/sys", "internal/source", "internal/probe", "internal/evidence", "internal/inventory",
		"internal/worker", "internal/workerbin", "internal/backend/linux", "internal/backend/internal", "internal/backend/docker", "internal/backend/oci", "internal/door/cli", "internal/door/control", "internal/verify", "internal/wire", "cmd", "bench", "test/harness",
	}},
}

func moduleOf(imp string, mods []string) string {
	for _, m := range mods {
		if below(imp, m) {
			return m
		}
	}
	return ""
}

// checkOutsiders keeps every module of others in its room.
func checkOutsiders(tr *tree) (bad []string) {
	for _, p := range tr.pkgs {
		for _, f := range p.files {
			for _, imp := range f.imports {
				if !foreign(imp) {
					continue
				}
				i := slices.IndexFunc(outsiders, func(o outside) bool { return below(imp, o.module) })
				switch {
				case i < 0:
					bad = append(bad, fmt.Sprintf("%s: %s has no room; see docs/dependencies.md on adding one", f.path, imp))
				case f.test:
				case !slices.ContainsFunc(outsiders[i].in, func(d string) bool { return below(p.dir, d) }) || slices.Contains(outsiders[i].not, p.dir):
					bad = append(bad, fmt.Sprintf("%s: %s may not be imported here", f.path, imp))
				}
			}
		}
	}
	return bad
}
