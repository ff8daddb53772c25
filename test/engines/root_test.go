//go:build linux

package engines

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// tarred is the archive of a small root that has a shell, and what marks it.
func tarred(t *testing.T, mark string) []byte {
	t.Helper()
	const busybox = "/bin/busybox"
	data, err := os.ReadFile(busybox)
	if err != nil {
		t.Skipf("no static busybox here (package busybox-static): %v", err)
	}
	root := t.TempDir()
	for _, d := range []string{"bin", "etc", "home", "usr"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"bin/busybox": string(data), "mark": mark, "etc/passwd": "", "etc/group": ""} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{"sh", "cat", "ls", "true"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", n)); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("tar", "-C", root, "-c", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}

// image is what a registry or a layout has of one: its parts by digest.
type image struct {
	parts    map[string][]byte
	manifest string // its digest
}

func imageOf(t *testing.T, layer []byte) image {
	t.Helper()
	im := image{parts: map[string][]byte{}}
	put := func(kind string, b []byte) map[string]any {
		im.parts[sum(b)] = b
		return map[string]any{"mediaType": kind, "digest": sum(b), "size": len(b)}
	}
	text := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	config := text(map[string]any{"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{}, "rootfs": map[string]any{"type": "layers", "diff_ids": []string{sum(layer)}}})
	m := text(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
		"config": put("application/vnd.docker.container.image.v1+json", config),
		"layers": []any{put("application/vnd.docker.image.rootfs.diff.tar", layer)}})
	im.parts[sum(m)], im.manifest = m, sum(m)
	return im
}

// layout writes an image as an OCI layout.
func (im image) layout(t *testing.T) string {
	t.Helper()
	dir := public(t)
	blobs := filepath.Join(dir, "blobs/sha256")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`),
		"index.json": fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[{"digest":%q,"size":%d}]}`, im.manifest, len(im.parts[im.manifest]))}
	for d, b := range im.parts {
		files["blobs/sha256/"+strings.TrimPrefix(d, "sha256:")] = b
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// registry serves it under any name and tag on the loopback interface, where engines
// ask for no certificate.
func (im image) registry(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		b, ok := im.parts[last]
		switch {
		case strings.Contains(r.URL.Path, "/manifests/"):
			if b, ok = im.parts[im.manifest], true; strings.HasPrefix(last, "sha256:") && last != im.manifest || last == "none" {
				ok = false
			}
			w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
			w.Header().Set("Docker-Content-Digest", im.manifest)
		case r.URL.Path == "/v2/":
			ok = true
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		_, _ = w.Write(b)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// public is a folder that every user may read.
func public(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "root-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func put(t *testing.T, dir, name string, b []byte) string {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.WriteFile(p, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

// A root comes out of a tar file, a saved image or an OCI layout, without a network
// and without an image at an engine.
func TestArchives(t *testing.T) {
	e := harness.Docker(t)
	one := tarred(t, "one")
	dir := public(t)
	tarFile, layout := put(t, dir, "root.tar", one), imageOf(t, one).layout(t)
	e.Import(t, unpacked(t, one), "archives:1")
	saved := filepath.Join(dir, "saved.tar")
	e.Run(t, "save", "--output", saved, "archives:1")
	if err := os.Chmod(saved, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, b := range []string{"docker", "linux"} {
		for _, w := range []struct {
			name string
			uid  int
		}{{"user", harness.UserID}, {"root", 0}} {
			t.Run(b+"/"+w.name, func(t *testing.T) {
				id := identity(t, e, w.name, w.uid)
				repo := id.Repo(t, map[string]string{"a.txt": "task\n"})
				archives := map[string]string{"tar": tarFile, "saved": saved, "layout": layout}
				if w.uid == 0 {
					archives = map[string]string{"saved": saved} // unpacked in the same way
				}
				for form, path := range archives {
					r := id.Caisson(t, repo, "run", "--backend", b, "--rootfs", path, "--", "sh", "-c", "cat /mark a.txt; ls -d /usr/bin /mark; echo x >/mark || echo read-only; echo b >b.txt")
					if r.Exit != 0 || !strings.HasPrefix(r.Stdout, "onetask\n") || !strings.Contains(r.Stdout, "read-only") || strings.Contains(r.Stdout, "/usr/bin") {
						t.Errorf("%s: %v", form, r)
					}
				}
				open := id.Open(t, repo, "--backend", b, "--rootfs", layout, "--keep", "always")
				v := harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open))
				if v.Rootfs != layout || v.RootDigest != imageOf(t, one).manifest {
					t.Errorf("on record: %q %q", v.Rootfs, v.RootDigest)
				}
				id.OK(t, repo, "exec", open, "--", "sh", "-c", "echo c >c.txt")
				id.Caisson(t, repo, "close", open)
				// It is made anew of the same bytes, or not at all.
				id.OK(t, repo, "resume", open)
				if r := id.Caisson(t, repo, "exec", open, "--", "cat", "/mark", "c.txt"); r.Stdout != "onec\n" {
					t.Errorf("resumed: %v", r)
				}
				id.OK(t, repo, "close", "--keep", "never", "--discard", open)
				if _, err := os.Stat(filepath.Join(v.TaskDir, "root")); !os.IsNotExist(err) {
					t.Errorf("the unpacked root is left: %v", err)
				}
			})
		}
	}
	t.Run("changed", func(t *testing.T) {
		id := identity(t, e, "user", harness.UserID)
		repo := id.Repo(t, map[string]string{"a.txt": "task\n"})
		own := put(t, id.Dir, "own.tar", one)
		open := id.Open(t, repo, "--backend", "linux", "--rootfs", own, "--keep", "always")
		id.OK(t, repo, "exec", open, "--", "true")
		id.Caisson(t, repo, "close", open)
		put(t, id.Dir, "own.tar", tarred(t, "two"))
		if r := id.Caisson(t, repo, "resume", open); r.Exit == 0 || !strings.Contains(r.Stderr, "has changed since") {
			t.Errorf("another archive: %v", r)
		}
		put(t, id.Dir, "own.tar", []byte("no archive at all"))
		if r := id.Caisson(t, repo, "run", "--backend", "linux", "--rootfs", own, "--", "true"); r.Exit != 125 || !strings.Contains(r.Stderr, "cannot be unpacked") {
			t.Errorf("no archive: %v", r)
		}
		id.OK(t, repo, "close", "--keep", "never", "--discard", open)
		if left, _ := filepath.Glob(id.State + "/tasks/*/root"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

func unpacked(t *testing.T, tar []byte) string {
	t.Helper()
	dir := t.TempDir()
	c := exec.Command("tar", "-C", dir, "-x")
	c.Stdin = strings.NewReader(string(tar))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return dir
}

// An image is fetched only by who says so, is what its digest says, and stays the
// same one when its name comes to mean another.
func TestPull(t *testing.T) {
	first(t, func(t *testing.T, e *harness.Engine) {
		if e.Backend == "podman" {
			t.Skip("Podman asks a registry without a certificate only where its configuration names it")
		}
		id := identity(t, e, "user", harness.UserID)
		repo := id.Repo(t, map[string]string{"a.txt": "task\n"})
		im := imageOf(t, tarred(t, "pulled"))
		name := im.registry(t) + "/some/root"
		run := func(args ...string) harness.Result {
			return id.Caisson(t, repo, append(append([]string{"run", "--backend", e.Backend}, args...), "--", "cat", "/mark")...)
		}
		if r := run("--image", name+":1"); r.Exit != 125 || !strings.Contains(r.Stderr, "docker pull "+name+":1") {
			t.Errorf("without --pull: %v", r)
		}
		if r := run("--image", name+":none", "--pull"); r.Exit != 125 || !strings.Contains(r.Stderr, "could not fetch") {
			t.Errorf("an image that the registry does not have: %v", r)
		}
		if r := run("--pull"); r.Exit != 125 && r.Exit != 2 || !strings.Contains(r.Stderr, "--image") {
			t.Errorf("nothing to pull: %v", r)
		}
		if r := run("--image", name+"@"+im.manifest, "--pull"); r.Exit != 0 || r.Stdout != "pulled" {
			t.Errorf("by digest: %v", r)
		}
		if r := run("--image", name+"@"+im.manifest); r.Exit != 0 || r.Stdout != "pulled" {
			t.Errorf("by digest, once it is there: %v", r)
		}
		if r := run("--image", name+":1", "--pull"); r.Exit != 0 || r.Stdout != "pulled" {
			t.Errorf("by name: %v", r)
		}
		open := id.Open(t, repo, "--backend", e.Backend, "--image", name+":1", "--keep", "always")
		v := harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open))
		if want := e.Run(t, "inspect", "--type", "image", "--format", "{{.Id}}", name+":1"); v.RootDigest != want || v.Image != name+":1" {
			t.Errorf("on record: %q %q, want %q", v.Image, v.RootDigest, want)
		}
		id.OK(t, repo, "exec", open, "--", "sh", "-c", "echo c >c.txt")
		id.Caisson(t, repo, "close", open)
		e.Import(t, unpacked(t, tarred(t, "another")), name+":1")
		id.OK(t, repo, "resume", open)
		if r := id.Caisson(t, repo, "exec", open, "--", "cat", "/mark"); r.Stdout != "pulled" {
			t.Errorf("resumed with another image: %v", r)
		}
		id.OK(t, repo, "close", "--keep", "never", "--discard", open)
		if r := run("--image", name+":1"); r.Stdout != "another" {
			t.Errorf("the name means another image now: %v", r)
		}
	})
}
