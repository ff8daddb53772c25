package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/backend/internal/rootdir"
	"github.com/caisson-dev/caisson/internal/task"
)

// rootRepo names the images that hold nothing but links and places for mounts:
// the root of a boundary whose folders are this machine's or a prepared root's.
const rootRepo = "localhost/caisson-root"

// pullTime bounds one fetch of an image.
const pullTime = time.Hour

// image finds what the container's root is. None is pulled.
func (in *instance) image(ctx context.Context, l *rootdir.Layout) (*imageInfo, error) {
	if in.spec.Image == "" {
		return in.engine.rootImage(ctx, l)
	}
	return in.driver.findImage(ctx, in.engine, in.spec.Image)
}

// FindImage implements backend.Imager.
func (d *Driver) FindImage(ctx context.Context, ref string, pull bool) (string, error) {
	e, _, err := d.engine(ctx)
	if err != nil {
		return "", err
	}
	i, err := d.findImage(ctx, e, ref)
	if pull && task.CodeOf(err) == task.CodeNotFound {
		if err := e.pull(ctx, ref); err != nil {
			return "", task.Errorf(task.CodeUnavailable, "docker.pull", "the engine could not fetch the image %s: %v", printable(ref, 200), err).
				WithHint("%s pull %s shows more, and knows your log-in to a registry; nothing was executed", d.name, printable(ref, 200))
		}
		i, err = d.findImage(ctx, e, ref)
	}
	if err != nil {
		return "", err
	}
	return i.ID, nil
}

// findImage finds the image of a name, digest or id.
func (d *Driver) findImage(ctx context.Context, e *engine, ref string) (*imageInfo, error) {
	if err := checkReference(ref); err != nil {
		return nil, err
	}
	i, err := e.imageOf(ctx, ref)
	switch {
	case missing(err):
		return nil, task.Errorf(task.CodeNotFound, "docker.image", "the image %s is not at the engine, and nothing is pulled without being told; nothing was created", printable(ref, 200)).
			WithHint("%s pull %s, or --pull", d.name, printable(ref, 200))
	case unreachable(err):
		return nil, d.noAnswer(e.at, err)
	case err != nil:
		return nil, task.Errorf(task.CodeUnavailable, "docker.image", "the engine does not tell of the image %s: %v", printable(ref, 200), err)
	case checkReference(i.ID) != nil:
		return nil, task.Errorf(task.CodeUnavailable, "docker.image", "the engine does not say which image %s is", printable(ref, 200))
	case i.Os != "" && i.Os != "linux":
		return nil, task.Errorf(task.CodeUnsupported, "docker.image", "the image %s is for %s", printable(ref, 200), printable(i.Os, 20)).WithHint("an image for linux")
	}
	if _, digest, ok := strings.Cut(ref, "@"); ok && !slices.ContainsFunc(i.RepoDigests, func(r string) bool { return strings.HasSuffix(r, "@"+digest) }) {
		return nil, task.Errorf(task.CodeUnavailable, "docker.image", "the engine has another image than %s names", printable(ref, 200)).
			WithHint("%s image inspect %s", d.name, printable(ref, 200))
	}
	return i, nil
}

// pull has the engine fetch an image from its registry, without a log-in.
func (e *engine) pull(ctx context.Context, ref string) error {
	name, tag, ok := strings.Cut(ref, "@")
	if !ok {
		if name, tag = ref, "latest"; strings.LastIndex(ref, ":") > strings.LastIndex(ref, "/") {
			name, tag = ref[:strings.LastIndex(ref, ":")], ref[strings.LastIndex(ref, ":")+1:]
		}
	}
	ctx, done := context.WithTimeout(ctx, pullTime)
	defer done()
	return e.call(ctx, http.MethodPost, "/images/create", url.Values{"fromImage": {name}, "tag": {tag}}, nil, func(r io.Reader) error {
		// The answer is a success before anything was done.
		dec := json.NewDecoder(r)
		for {
			var s struct{ Error string }
			if err := dec.Decode(&s); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if s.Error != "" {
				return errors.New(printable(s.Error, 400))
			}
		}
	})
}

// checkReference refuses what is no name of an image: it becomes part of a path of
// the API.
func checkReference(ref string) error {
	ok := ref != "" && len(ref) < 512 && ref[0] != '-' && ref[0] != '/' && !strings.Contains(ref, "..") && !strings.Contains(ref, "//")
	for _, r := range ref {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/:@", r))
	}
	if ok {
		return nil
	}
	return task.Errorf(task.CodeUsage, "docker.image", "--image does not know %q", ref).
		WithHint("it takes what docker images lists: NAME:TAG, NAME@sha256:DIGEST or an id")
}

func (e *engine) imageOf(ctx context.Context, ref string) (*imageInfo, error) {
	ctx, done := context.WithTimeout(ctx, answerTime)
	defer done()
	var i imageInfo
	err := e.call(ctx, http.MethodGet, "/images/"+ref+"/json", nil, nil, &i)
	return &i, err
}

// rootImage finds or makes the image for a layout. It holds no file, is the same
// for every task with these links, and stays at the engine.
func (e *engine) rootImage(ctx context.Context, l *rootdir.Layout) (*imageInfo, error) {
	text, err := rootTar(l)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	tag := hex.EncodeToString(sum[:8])
	ref := rootRepo + ":" + tag
	i, err := e.imageOf(ctx, ref)
	if err == nil || !missing(err) {
		return i, err
	}
	ictx, done := context.WithTimeout(ctx, answerTime)
	defer done()
	var said string
	q := url.Values{"fromSrc": {"-"}, "repo": {rootRepo}, "tag": {tag}, "message": {"places for the mounts of boundaries; it holds no file"}}
	if err := e.call(ictx, http.MethodPost, "/images/create", q, bytes.NewReader(text), &said); err != nil {
		return nil, task.Errorf(task.CodeUnavailable, "docker.image", "the engine does not take an image without files: %v", err).
			WithHint("free space where the engine keeps its images; `docker system df` shows what is used")
	}
	if i, err = e.imageOf(ctx, ref); !missing(err) {
		return i, err
	}
	// Podman 4 gives an imported image no name; the answer has its id.
	id := importedID(said)
	if checkReference(id) != nil {
		return nil, err
	}
	if err := e.call(ictx, http.MethodPost, "/images/"+id+"/tag", url.Values{"repo": {rootRepo}, "tag": {tag}}, nil, nil); err != nil {
		return nil, err
	}
	return e.imageOf(ctx, ref)
}

// importedID is the last status of an import, which is the id of what it made.
func importedID(said string) (id string) {
	dec := json.NewDecoder(strings.NewReader(said))
	for {
		var s struct {
			Status string `json:"status"`
		}
		if dec.Decode(&s) != nil {
			return strings.TrimSpace(id)
		}
		id = s.Status
	}
}

// rootTar is the archive of such an image: the same bytes for the same links.
func rootTar(l *rootdir.Layout) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{}
	var dir func(p string) error
	dir = func(p string) error {
		if p == "/" || p == "." || made[p] {
			return nil
		}
		made[p] = true
		if err := dir(path.Dir(p)); err != nil {
			return err
		}
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: p[1:] + "/", Mode: 0o755})
	}
	// No /tmp: what is in an image gives what is mounted on it its own mode.
	for _, p := range []string{"/dev", "/etc", "/home", "/proc", "/run", "/sys", "/usr", "/var"} {
		if err := dir(p); err != nil {
			return nil, err
		}
	}
	for _, p := range slices.Sorted(maps.Keys(l.Links)) {
		if err := dir(path.Dir(p)); err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: p[1:], Linkname: l.Links[p], Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
