//go:build linux

package docker

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// What is asked of an engine leaves its own protections on, and an engine that left
// one out all the same is found out.
func TestProtectionsAreKept(t *testing.T) {
	token := strings.Repeat("t", 32)
	in := &instance{driver: &Driver{cfg: Config{Dir: "/state/engine"}}, token: token, spec: backend.Spec{Token: token, Task: "t", Instance: "i", Home: "/home/x"},
		known: &known{version: &versionInfo{}, system: &systemInfo{}}}
	cfg := in.config(&imageInfo{}, nil)
	if why := loose(cfg.HostConfig.SecurityOpt); why != "" || cfg.HostConfig.Privileged {
		t.Errorf("it asks for %q", why)
	}
	for _, m := range cfg.HostConfig.Mounts {
		if strings.Contains(m.Source+m.Target, ":z") {
			t.Errorf("%v has files labelled anew", m)
		}
	}
	answer := func(options ...string) *containerInfo {
		return &containerInfo{Config: cfg, HostConfig: &hostConfig{NetworkMode: "none", ReadonlyRootfs: true, SecurityOpt: options}}
	}
	if why := in.differs(answer("no-new-privileges", "seccomp=/etc/own.json", "label=type:own_t")); why != "" {
		t.Errorf("kept: %s", why)
	}
	for _, o := range []string{"seccomp=unconfined", "seccomp:unconfined", "apparmor=unconfined", "label=disable", "label:disable", "no-new-privileges=false", "systempaths=unconfined"} {
		if why := in.differs(answer("no-new-privileges", o)); !strings.Contains(why, "goes without") {
			t.Errorf("%s: %q", o, why)
		}
	}
}

// Where SELinux keeps a container from files, that is told with the way; nothing is
// labelled by itself.
func TestLabels(t *testing.T) {
	in := &instance{driver: &Driver{cfg: Config{Dir: "/state/engine"}}, known: &known{system: &systemInfo{SecurityOptions: []string{"name=seccomp,profile=default", "name=selinux"}}}}
	denied := errors.New(`exec: "/run/boundary/worker": permission denied: unknown`)
	if h := task.HintOf(in.explainStart(&statusError{code: 400, text: denied.Error()})); !strings.Contains(h, "restorecon -R /state") {
		t.Errorf("a start: %q", h)
	}
	if h := in.labels("stat /home/x/project: permission denied"); !strings.Contains(h, "container_file_t") {
		t.Errorf("the worker: %q", h)
	}
	if h := in.labels("no such file"); h != "" {
		t.Errorf("another reason: %q", h)
	}
	in.known.system.SecurityOptions = nil
	if h := in.labels(denied.Error()); h != "" {
		t.Errorf("without SELinux: %q", h)
	}
}
