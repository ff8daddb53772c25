package stage

import (
	"reflect"
	"testing"
)

// Every field that is not told in another way arrives.
func TestEncoding(t *testing.T) {
	p := Plan{
		UID: 1000, GID: 1001, Hostname: "box", Workdir: "/home/x", NoLandlock: true, Ptrace: true, Landlock: []string{"/tmp", ""},
		Steps:      []Step{{Op: "bind", Source: "/a", FD: 3, Target: "/b", Flags: []string{"ro", "nodev"}, Data: "x\x00y", Dev: 1 << 40, Ino: 1<<64 - 1, Mode: 0o755}},
		Space:      []Step{{Op: "proc", Target: "/proc"}},
		ToolFilter: []byte{0, 255, 8}, Rlimits: []Rlimit{{Resource: 7, Soft: 1, Hard: 1<<64 - 1}}, Userns: true, Env: []string{"A=b"},
		UserLimits: map[string]int{"max_inotify_watches": 5, "b": 6},
		Inward:     3, Local: []string{"ssh", "git"}, Way: &Way{Proxy: 61080, Ports: []uint16{80, 65535}, Six: []uint16{443}, At: []string{"127.0.0.1:5432"}},
	}
	var got Plan
	if err := got.decode(p.encode()); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%v\n%+v\n%+v", err, got, p)
	}
	r := Rest{Filter: []byte{1}, Userns: true, Workdir: "/w", Env: []string{"C=d", "E"}, Rlimits: p.Rlimits, Landlock: []string{"/w"}, NoLandlock: true}
	var rest Rest
	if err := rest.decode(r.encode()); err != nil || !reflect.DeepEqual(rest, r) {
		t.Errorf("%v\n%+v\n%+v", err, rest, r)
	}
	// A field that is added to a type and not to its encoding would be lost in
	// silence: what is set here must be all there is, but for the worker's
	// filter, which goes with Rest.
	for _, v := range []reflect.Value{reflect.ValueOf(p), reflect.ValueOf(p.Steps[0]), reflect.ValueOf(p.Rlimits[0]), reflect.ValueOf(*p.Way), reflect.ValueOf(r)} {
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "WorkerFilter" {
				t.Errorf("%s.%s is not tested", v.Type(), name)
			}
		}
	}
	whole := p.encode()
	for n := range whole {
		if new(Plan).decode(whole[:n]) == nil {
			t.Fatalf("%d of %d bytes are taken for a plan", n, len(whole))
		}
	}
	if new(Plan).decode(append(whole, 0)) == nil {
		t.Error("a byte too many was not noticed")
	}
}

// Whatever the bytes, reading them ends and takes no more memory than they have.
func FuzzDecode(f *testing.F) {
	f.Add((&Plan{Env: []string{"a"}}).encode())
	f.Add((&Rest{Env: []string{"a"}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Plan
		if p.decode(b) == nil {
			if err := new(Plan).decode(p.encode()); err != nil {
				t.Error(err)
			}
		}
		_ = new(Rest).decode(b)
	})
}
