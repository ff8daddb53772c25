package detect

import (
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// compose reads a Compose file.
func (s *scan) compose(f *file) {
	docs := s.yaml(f, "SVC-01")
	for _, n := range docs {
		services := n.get("services")
		if services == nil && n.get("version") == nil {
			services = n // the first version had no such key
		}
		services.each(func(name string, v *node) {
			if v.kind != 'm' {
				return
			}
			s.service(f, name, v)
		})
		n.get("volumes").each(func(name string, v *node) {
			s.found("SVC-07", "yes", name, f.path, v.line, task.Certain)
		})
		if n.get("include") != nil {
			s.note(f.path, "includes other files, which are looked at only where their name is telling")
			s.unknown("SVC-01", f.path, n.get("include").line)
		}
	}
	if len(docs) > 0 {
		s.found("CON-01", "yes", "", f.path, 0, task.Certain)
		s.found("PRC-01", "yes", "", f.path, 0, task.Certain)
	}
}

// service reads one service of a Compose file.
func (s *scan) service(f *file, name string, v *node) {
	if image := v.get("image"); image != nil && image.kind == 's' {
		kind := imageKind(defaultOf(image.str))
		s.services("SVC-01", kind, name+" ("+imageName(image.str)+")", f.path, image.line, task.Likely)
		if kind == 0 && strings.Contains(image.str, "dind") || strings.HasPrefix(image.str, "docker:") {
			s.found("CON-03", "yes", name, f.path, image.line, task.Likely)
		}
	} else if kind := imageKind(name); kind != 0 && v.get("build") != nil {
		s.services("SVC-01", kind, name, f.path, v.line, task.Guess)
	}
	if v.get("extends") != nil || v.get("provider") != nil {
		s.unknown("SVC-01", f.path, v.line)
	}
	if p := v.get("ports"); p != nil && len(p.kids) > 0 {
		s.found("PRC-02", "yes", name, f.path, p.line, task.Certain)
	}
	s.hostAccess(f, name, v)
	for _, k := range []string{"command", "entrypoint"} {
		if c := v.get(k); c != nil && c.kind == 's' {
			s.script(c.str, name, f.path, c.line)
		}
	}
	for _, e := range []string{"environment"} {
		v.get(e).each(func(k string, x *node) {
			if k == "" {
				var val string
				k, val, _ = strings.Cut(x.str, "=")
				s.setting(k, val, f.path, x.line)
				return
			}
			s.setting(k, x.str, f.path, x.line)
		})
	}
}

// hostAccess looks for what opens the host to a container.
func (s *scan) hostAccess(f *file, name string, v *node) {
	if p := v.get("privileged"); p != nil && p.str != "false" {
		s.found("KRN-01", "yes", name+": privileged", f.path, p.line, task.Certain)
	}
	for _, k := range []string{"network_mode", "pid", "ipc", "userns_mode", "uts", "cgroup"} {
		if p := v.get(k); p != nil && p.str == "host" {
			s.found("KRN-01", "yes", name+": "+k+" host", f.path, p.line, task.Certain)
		}
	}
	for _, k := range []string{"devices", "cap_add", "device_cgroup_rules", "security_opt", "sysctls", "gpus", "runtime"} {
		if p := v.get(k); p != nil && (len(p.kids) > 0 || p.str != "") {
			s.found("KRN-01", "yes", name+": "+k, f.path, p.line, task.Certain)
		}
	}
	if p := v.get("deploy", "resources", "reservations", "devices"); p != nil {
		s.found("KRN-01", "yes", name+": devices", f.path, p.line, task.Certain)
	}
	v.get("volumes").each(func(_ string, x *node) {
		src := x.str
		if x.kind == 'm' {
			src = x.text("source")
		}
		s.mount(f, name, src, x.line)
	})
}

// mount looks at the host's side of a mount.
func (s *scan) mount(f *file, name, src string, line int) {
	if strings.Contains(src, "docker.sock") || strings.Contains(src, "podman.sock") || strings.Contains(src, "containerd.sock") || strings.Contains(src, "crio.sock") {
		s.found("CON-03", "yes", name, f.path, line, task.Certain)
	}
	if strings.HasPrefix(src, "/dev") || strings.HasPrefix(src, "/sys") || strings.HasPrefix(src, "/proc") || strings.HasPrefix(src, "/lib/modules") || strings.HasPrefix(src, "/:") {
		s.found("KRN-01", "yes", name+": mount of the host", f.path, line, task.Certain)
	}
}

// defaultOf takes the default out of ${NAME:-default}.
func defaultOf(s string) string {
	if i := strings.Index(s, ":-"); i >= 0 && strings.HasPrefix(s, "${") {
		return strings.Replace(s[i+2:], "}", "", 1)
	}
	return s
}

// imageName is an image without its registry's user and digest.
func imageName(s string) string {
	s, _, _ = strings.Cut(defaultOf(s), "@")
	return s
}

// devcontainer reads the settings of a development container.
func (s *scan) devcontainer(f *file) {
	n := s.json(f, "HST-01")
	if n == nil {
		return
	}
	s.found("CON-01", "yes", "", f.path, 0, task.Certain)
	if c := n.get("initializeCommand"); c != nil {
		s.found("HST-01", "repo-defined", "initializeCommand", f.path, c.line, task.Certain)
		s.commands(f, "initializeCommand", c)
	}
	for _, k := range []string{"onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand"} {
		if c := n.get(k); c != nil {
			s.commands(f, k, c)
		}
	}
	if p := n.get("forwardPorts"); p != nil && len(p.kids) > 0 {
		s.found("PRC-02", "yes", "", f.path, p.line, task.Certain)
	}
	s.hostAccess(f, "devcontainer", n)
	for _, k := range []string{"capAdd", "securityOpt"} {
		if p := n.get(k); p != nil && len(p.kids) > 0 {
			s.found("KRN-01", "yes", "devcontainer: "+k, f.path, p.line, task.Certain)
		}
	}
	for _, a := range n.get("runArgs").scalars() {
		if strings.HasPrefix(a.str, "--privileged") || strings.HasPrefix(a.str, "--device") || strings.HasPrefix(a.str, "--cap-add") || strings.HasSuffix(a.str, "=host") || strings.HasPrefix(a.str, "--security-opt") || strings.HasPrefix(a.str, "--gpus") {
			s.found("KRN-01", "yes", "devcontainer: "+a.str, f.path, a.line, task.Certain)
		}
	}
	n.get("mounts").each(func(_ string, m *node) {
		src := m.str + m.text("source")
		if _, rest, ok := strings.Cut(src, "source="); ok {
			src, _, _ = strings.Cut(rest, ",")
		}
		s.mount(f, "devcontainer", src, m.line)
	})
	n.get("features").each(func(name string, v *node) {
		if strings.Contains(name, "docker-in-docker") || strings.Contains(name, "docker-outside") || strings.Contains(name, "docker-from") || strings.Contains(name, "kubectl") {
			s.found("CON-03", "yes", name, f.path, v.line, task.Certain)
		}
	})
	for _, k := range []string{"containerEnv", "remoteEnv"} {
		n.get(k).each(func(key string, v *node) { s.setting(key, v.str, f.path, v.line) })
	}
}

// commands analyses a command that is a text, a list of words, or a map of
// those.
func (s *scan) commands(f *file, name string, c *node) {
	switch c.kind {
	case 's':
		s.script(c.str, name, f.path, c.line)
	case 'l':
		var ws []word
		for _, x := range c.kids {
			ws = append(ws, word{x.str, x.kind == 's'})
		}
		a := &analyser{}
		a.call(ws)
		s.effects(a, name, f.path, c.line)
	case 'm':
		c.each(func(_ string, x *node) {
			if x.kind != 'm' {
				s.commands(f, name, x)
			}
		})
	}
}

// dockerfile reads the instructions of a Dockerfile.
func (s *scan) dockerfile(f *file) {
	s.found("CON-01", "yes", "", f.path, 0, task.Certain)
	var cmd strings.Builder
	start := 0
	for i, line := range lines(f.b) {
		t := strings.TrimSpace(line)
		if cmd.Len() == 0 {
			if t == "" || t[0] == '#' {
				continue
			}
			start = i + 1
		} else if strings.HasPrefix(t, "#") {
			continue
		}
		if rest, ok := strings.CutSuffix(t, `\`); ok {
			cmd.WriteString(rest + " ")
			continue
		}
		cmd.WriteString(t)
		s.instruction(f, cmd.String(), start)
		cmd.Reset()
	}
}

func (s *scan) instruction(f *file, text string, line int) {
	word, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch strings.ToUpper(word) {
	case "EXPOSE":
		s.found("PRC-02", "yes", "", f.path, line, task.Likely)
	case "RUN":
		if strings.Contains(rest, "--security=insecure") || strings.Contains(rest, "--network=host") {
			s.found("KRN-01", "yes", "RUN of the host", f.path, line, task.Certain)
		}
		for strings.HasPrefix(rest, "--") {
			_, rest, _ = strings.Cut(rest, " ")
		}
		if !strings.HasPrefix(rest, "[") && !strings.HasPrefix(rest, "<<") {
			s.script(rest, "RUN", f.path, line)
		}
	case "ENV", "ARG":
		k, v, ok := strings.Cut(rest, "=")
		if !ok {
			k, v, _ = strings.Cut(rest, " ")
		}
		s.setting(strings.TrimSpace(k), strings.Trim(v, `"' `), f.path, line)
	}
}
