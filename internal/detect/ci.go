package detect

import (
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// actions reads a workflow of GitHub Actions.
func (s *scan) actions(f *file) {
	for _, n := range s.yaml(f, "SVC-02") {
		n.get("jobs").each(func(_ string, job *node) {
			s.ciServices(f, job)
			for _, c := range []*node{job.get("container"), job.get("container", "options")} {
				if c != nil && c.kind == 's' && strings.Contains(c.str, "--privileged") {
					s.found("KRN-01", "yes", "container", f.path, c.line, task.Certain)
				}
			}
			job.get("steps").each(func(_ string, step *node) {
				if r := step.get("run"); r != nil && r.kind == 's' {
					if sh := step.text("shell"); sh == "" || strings.HasPrefix(sh, "bash") || strings.HasPrefix(sh, "sh") {
						s.script(without(r.str, "${{", "}}"), "run", f.path, r.line+1)
					}
				}
				uses := step.text("uses")
				switch {
				case strings.HasPrefix(uses, "docker/") || strings.HasPrefix(uses, "docker://"):
					s.found("CON-01", "yes", uses, f.path, step.line, task.Likely)
				case strings.HasPrefix(uses, "ankane/setup-") || strings.Contains(uses, "postgres") || strings.Contains(uses, "mysql") || strings.Contains(uses, "redis"):
					s.services("SVC-02", imageKind(uses), uses, f.path, step.line, task.Likely)
				}
			})
		})
	}
}

// ciServices reads the services of one job, as a map of names or a list.
func (s *scan) ciServices(f *file, job *node) {
	job.get("services").each(func(name string, v *node) {
		image := v.str
		if v.kind == 'm' {
			if image = v.text("image"); image == "" {
				image = v.text("name")
			}
			if o := v.text("options"); strings.Contains(o, "--privileged") {
				s.found("KRN-01", "yes", name, f.path, v.line, task.Certain)
			}
		}
		s.ciImage(f, name, image, v.line)
	})
}

func (s *scan) ciImage(f *file, name, image string, line int) {
	kind := imageKind(defaultOf(image))
	if kind == 0 {
		kind = imageKind(name)
	}
	s.services("SVC-02", kind, strings.TrimSpace(name+" "+imageName(image)), f.path, line, task.Certain)
	if strings.Contains(image, "dind") || strings.HasPrefix(image, "docker:") || name == "docker" {
		s.found("CON-03", "yes", image, f.path, line, task.Certain)
	}
}

// gitlab reads .gitlab-ci.yml.
func (s *scan) gitlab(f *file) {
	for _, n := range s.yaml(f, "SVC-02") {
		s.ciServices(f, n)
		s.gitlabScripts(f, "", n)
		n.each(func(name string, job *node) {
			if job.kind != 'm' || name == "variables" || name == "include" {
				return
			}
			s.ciServices(f, job)
			s.gitlabScripts(f, name, job)
		})
	}
}

func (s *scan) gitlabScripts(f *file, name string, job *node) {
	for _, k := range []string{"before_script", "script", "after_script"} {
		for _, c := range job.get(k).scalars() {
			s.script(c.str, name, f.path, c.line)
		}
	}
}

// genericCI reads other forms: services by their keys, scripts by theirs.
func (s *scan) genericCI(f *file) {
	for _, n := range s.yaml(f, "SVC-02") {
		for _, x := range n.get("services").scalars() { // Travis: bare names
			s.ciImage(f, x.str, "", x.line)
		}
		n.walk(func(key string, v *node) {
			switch key {
			case "image":
				if v.kind == 's' {
					s.ciImage(f, "", v.str, v.line)
				}
			case "script", "before_script", "before_install", "install", "after_success", "run", "command", "commands", "bash", "steps":
				for _, c := range v.scalars() {
					s.script(c.str, key, f.path, c.line)
				}
			case "setup_remote_docker":
				s.found("CON-03", "yes", key, f.path, v.line, task.Certain)
			case "privileged":
				if v.str == "true" {
					s.found("KRN-01", "yes", key, f.path, v.line, task.Certain)
				}
			}
		})
		walkScalars(n, func(v *node) {
			if v.str == "setup_remote_docker" {
				s.found("CON-03", "yes", v.str, f.path, v.line, task.Certain)
			}
		})
	}
}

func walkScalars(n *node, f func(*node)) {
	n.walk(func(_ string, v *node) {
		if v.kind == 's' {
			f(v)
		}
	})
}

// kubernetes reads manifests of a cluster.
func (s *scan) kubernetes(f *file) {
	docs, err := parseYAML(f.b[:min(len(f.b), maxYAML)]) // what is cut off is not missed: one kind is enough
	if err != nil && len(docs) == 0 {
		if strings.Contains(string(f.b), "apiVersion") {
			s.found("EXT-02", "mutate", "Kubernetes", f.path, 0, task.Likely) // a template of Helm is no YAML
		}
		return
	}
	for _, n := range docs {
		kind := n.text("kind")
		if n.text("apiVersion") == "" || kind == "" {
			continue
		}
		if s.once("EXT-02", f.path) {
			s.found("EXT-02", "mutate", "Kubernetes "+kind, f.path, n.line, task.Likely)
		}
		n.walk(func(key string, v *node) {
			switch {
			case key == "image" && v.kind == 's':
				s.services("SVC-01", imageKind(v.str), imageName(v.str), f.path, v.line, task.Likely)
			case (key == "privileged" || key == "hostNetwork" || key == "hostPID" || key == "hostIPC") && v.str == "true":
				s.found("KRN-01", "yes", key, f.path, v.line, task.Certain)
			case key == "hostPath":
				s.mount(f, kind, v.text("path"), v.line)
			}
		})
	}
}

// firebase reads firebase.json.
func (s *scan) firebase(f *file) {
	n := s.json(f, "SVC-06")
	if e := n.get("emulators"); e != nil {
		s.found("SVC-06", "emulator", "firebase", f.path, e.line, task.Certain)
	}
	if n.get("hosting") != nil || n.get("functions") != nil {
		s.found("EXT-03", "yes", "firebase", f.path, 0, task.Likely)
	}
}

// sql looks at what a text of SQL does.
func (s *scan) sql(f *file) {
	rule := "MIG-03"
	low := strings.ToLower(f.path)
	for _, d := range migrationFolders {
		if hasFolder(low, d) {
			rule = "MIG-01"
		}
	}
	e := sqlEffect(string(f.b))
	for _, r := range effectRules {
		if e&r.bit != 0 && r.what == task.Migrations {
			s.found(rule, r.value, "", f.path, sqlLine(f.b, r.bit), task.Likely)
		}
	}
}

// sqlLine is the first line that has an effect.
func sqlLine(b []byte, bit effect) int {
	for i, l := range lines(b) {
		if sqlEffect(l)&bit != 0 {
			return i + 1
		}
	}
	return 0
}
