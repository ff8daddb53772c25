//go:build linux

package docker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// said is an engine that says what a test wants it to, and counts what it is asked.
type said struct {
	server, api string // headers of the answer to /_ping
	components  string // of /version
	low, high   string // of /version

	mu    sync.Mutex
	cpus  int // 0: 7
	asked map[string]int
}

func (s *said) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.URL.Path]++
	switch r.URL.Path {
	case "/_ping":
		w.Header().Set("Server", s.server)
		if s.api != "" {
			w.Header().Set("Api-Version", s.api)
		}
	case "/version":
		fmt.Fprintf(w, `{"Version":"4","ApiVersion":%q,"MinAPIVersion":%q,"Components":[{"Name":%q}]}`, s.high, s.low, s.components)
	case "/v1.41/info":
		_ = json.NewEncoder(w).Encode(map[string]any{"NCPU": cmp.Or(s.cpus, 7)})
	default:
		http.NotFound(w, r)
	}
}

// took returns what was asked since the last time, in a word.
func (s *said) took() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := fmt.Sprintf("ping %d, version %d, info %d", s.asked["/_ping"], s.asked["/version"], s.asked["/v1.41/info"])
	s.asked = map[string]int{}
	return out
}

// speak starts it and returns drivers of it, each as a new process has it.
func speak(t *testing.T, name string, s *said) func() *Driver {
	t.Helper()
	s.asked = map[string]int{}
	dir, err := os.MkdirTemp("", "engine-") // short: it is a socket's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: s}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return func() *Driver {
		return New(name, Config{Getenv: func(k string) string { return map[string]string{OwnVariable: "unix://" + path}[k] }}).(*Driver)
	}
}

func TestAnEngineIsAskedOnce(t *testing.T) {
	for _, c := range []struct {
		name, components string
	}{
		{Docker, "Engine"},
		{Podman, "Podman Engine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &said{server: "it/1", api: "1.41", high: "1.41", low: "1.24", components: c.components}
			fresh := speak(t, c.name, s)
			d := fresh()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					e, k, err := d.engine(t.Context())
					if err != nil || e.version != "1.41" || k.system.NCPU != 7 {
						t.Errorf("the engine is %v, %v: %v", e, k, err)
					}
				})
			}
			all.Wait()
			if got := s.took(); got != "ping 1, version 1, info 1" {
				t.Errorf("eight at once asked %s", got)
			}
			lesson := d.Learned()
			if lesson == nil {
				t.Fatal("it learned nothing")
			}
			for _, l := range []struct {
				what, want, server string
				lesson             []byte
			}{
				{"with what was learned", "ping 1, version 0, info 0", "it/1", lesson},
				{"with nothing", "ping 1, version 1, info 1", "it/1", nil},
				{"with something else", "ping 1, version 1, info 1", "it/1", []byte(`{"at":1}`)},
				{"with half of it", "ping 1, version 1, info 1", "it/1", []byte(strings.Replace(string(lesson), `"system"`, `"sistem"`, 1))},
				{"of another server", "ping 1, version 1, info 1", "it/2", lesson},
			} {
				s.mu.Lock()
				s.server = l.server
				s.mu.Unlock()
				d := fresh()
				d.Recall(l.lesson)
				if _, k, err := d.engine(t.Context()); err != nil || k.system.NCPU != 7 || k.version.podman() != (c.name == Podman) {
					t.Errorf("%s: %v, %v", l.what, k, err)
				}
				if got := s.took(); got != l.want {
					t.Errorf("%s it asked %s, not %s", l.what, got, l.want)
				}
				if old := l.want == "ping 1, version 0, info 0"; d.mistook(t.Context()) || old != (s.took() == "ping 1, version 1, info 1") {
					t.Errorf("%s it was taken for another, or not looked at", l.what)
				}
				d.Forget()
				if _, _, err := d.engine(t.Context()); err != nil {
					t.Error(err)
				}
				if got := s.took(); got != "ping 1, version 1, info 1" {
					t.Errorf("%s and told to forget it asked %s", l.what, got)
				}
			}
		})
	}
}

func TestVersionsOfTheAPI(t *testing.T) {
	for _, c := range []struct{ api, low, high, version, refused string }{
		{"1.41", "1.24", "1.41", "1.41", ""},
		{"", "1.24", "1.41", "1.41", ""}, // a proxy may take headers away
		{"1.60", "1.24", "1.60", newestAPI, ""},
		{"1.39", "1.12", "1.39", "", "speaks versions up to 1.39"},
		{"", "1.12", "1.39", "", "speaks versions 1.12 to 1.39"},
		{"1.60", "1.50", "1.60", newestAPI, "speaks versions 1.50 to 1.60"},
		{"x", "1.24", "1.41", "", "speaks versions up to x"},
	} {
		s := &said{api: c.api, low: c.low, high: c.high}
		d := speak(t, Docker, s)()
		e, err := d.reach(t.Context())
		if err == nil {
			if e.version != c.version {
				t.Errorf("%+v: version %s is spoken", c, e.version)
			}
			_, err = e.versions(t.Context())
		}
		if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused) || task.CodeOf(err) != task.CodeUnavailable || task.HintOf(err) == "") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestAnEngineThatIsNoMoreWhatItWas(t *testing.T) {
	s := &said{server: "it/1", api: "1.41", high: "1.41", low: "1.24", components: "Engine"}
	fresh := speak(t, Docker, s)
	d := fresh()
	if _, _, err := d.engine(t.Context()); err != nil {
		t.Fatal(err)
	}
	lesson := d.Learned()
	if d.mistook(t.Context()) {
		t.Error("nothing was recalled, and it was mistaken")
	}
	d = fresh()
	d.Recall(lesson)
	if _, _, err := d.engine(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.cpus = 3
	s.mu.Unlock()
	if !d.mistook(t.Context()) {
		t.Error("it has other processors now, and nobody noticed")
	}
	if _, k, err := d.engine(t.Context()); err != nil || k.system.NCPU != 3 {
		t.Errorf("it is %v, %v", k, err)
	}
}

func TestAnEngineThatComesLater(t *testing.T) {
	s := &said{api: "1.41", low: "1.24", high: "?", components: "Engine"}
	d := speak(t, Docker, s)()
	if _, _, err := d.engine(t.Context()); task.CodeOf(err) != task.CodeUnavailable {
		t.Errorf("of no version that can be read: %v", err)
	}
	s.mu.Lock()
	s.high = "1.41"
	s.mu.Unlock()
	if _, _, err := d.engine(t.Context()); err != nil {
		t.Errorf("asked again: %v", err)
	}
}
