package rootfs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Names in an OCI layout, and of the list in what docker save writes.
const (
	layoutName = "oci-layout"
	indexName  = "index.json"
	dockerName = "manifest.json"
)

// maxJSON bounds a list or manifest.
const maxJSON = 4 << 20

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
	Platform  *struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	} `json:"platform"`
}

// manifest is a list of manifests, or one of layers.
type manifest struct {
	MediaType string       `json:"mediaType"`
	Manifests []descriptor `json:"manifests"`
	Layers    []descriptor `json:"layers"`
}

// image unpacks the one image of a layout that is for this machine.
func (u *unpacking) image(in files) error {
	text, err := small(in, indexName)
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("%s: %v", indexName, err)
	}
	for depth := 0; len(m.Manifests) > 0; depth++ {
		d, err := forHere(m.Manifests)
		if err != nil {
			return err
		}
		if depth > 4 || d.Size > maxJSON {
			return errors.New("its lists of images lead too far")
		}
		if text, err = u.blob(in, *d); err != nil {
			return err
		}
		m = manifest{}
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("%s: %v", d.Digest, err)
		}
		u.done.Digest = d.Digest
	}
	if len(m.Layers) == 0 {
		return errors.New("it holds no image with layers")
	}
	for _, l := range m.Layers {
		if err := u.held1(in, l); err != nil {
			return fmt.Errorf("layer %s: %w", short(l.Digest), err)
		}
	}
	return nil
}

// forHere picks the image of a list: the only one, or the only one for this
// machine.
func forHere(ds []descriptor) (*descriptor, error) {
	var fit []*descriptor
	var others []string
	for i := range ds {
		d := &ds[i]
		switch p := d.Platform; {
		case p == nil || p.OS == "linux" && p.Architecture == runtime.GOARCH:
			fit = append(fit, d)
		case p.OS != "unknown": // what is said about an image is listed so
			others = append(others, p.OS+"/"+p.Architecture)
		}
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) > 1:
		return nil, task.Errorf(task.CodeUsage, op, "it holds %d images for this machine", len(fit)).
			WithHint("make a layout of the one that is meant: skopeo copy oci:LAYOUT:NAME oci:NEW")
	}
	return nil, task.Errorf(task.CodeUsage, op, "it holds no image for linux/%s, only for %q", runtime.GOARCH, others).
		WithHint("make one with skopeo copy --override-os linux --override-arch %s …", runtime.GOARCH)
}

// held1 unpacks one layer and holds it to its digest.
func (u *unpacking) held1(in files, d descriptor) error {
	if strings.Contains(d.MediaType, "encrypted") || strings.Contains(d.MediaType, "foreign") || strings.Contains(d.MediaType, "nondistributable") {
		return fmt.Errorf("it is of the kind %q", d.MediaType)
	}
	name, err := blobName(d.Digest)
	if err != nil {
		return err
	}
	f, size, err := in.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if size != d.Size {
		return fmt.Errorf("it has %d bytes, not %d", size, d.Size)
	}
	sum := sha256.New()
	whole := io.TeeReader(u.held(f), sum)
	if err := u.layer(whole, true); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, whole); err != nil { // what follows the archive's end
		return err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != d.Digest {
		return fmt.Errorf("it is not what its digest says, but %s", short(got))
	}
	return nil
}

// blob returns a small one, held to its digest.
func (u *unpacking) blob(in files, d descriptor) ([]byte, error) {
	name, err := blobName(d.Digest)
	if err != nil {
		return nil, err
	}
	b, err := small(in, name)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	if got := "sha256:" + hex.EncodeToString(sum[:]); got != d.Digest {
		return nil, fmt.Errorf("%s is not what its digest says, but %s", short(d.Digest), short(got))
	}
	return b, nil
}

func blobName(digest string) (string, error) {
	h, ok := strings.CutPrefix(digest, "sha256:")
	if b, err := hex.DecodeString(h); !ok || err != nil || len(b) != sha256.Size || h != strings.ToLower(h) {
		return "", fmt.Errorf("%q is no digest of sha256", short(digest))
	}
	return "blobs/sha256/" + h, nil
}

func small(in files, name string) ([]byte, error) {
	f, size, err := in.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxJSON {
		return nil, fmt.Errorf("%s has %d bytes", name, size)
	}
	return io.ReadAll(io.LimitReader(f, maxJSON))
}

// short makes a digest or a name that an archive chose fit to be shown.
func short(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// saved unpacks the one image that docker save wrote.
func (u *unpacking) saved(in files) error {
	text, err := small(in, dockerName)
	if err != nil {
		return err
	}
	var list []struct{ Layers []string }
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("%s: %v", dockerName, err)
	}
	if len(list) != 1 {
		return task.Errorf(task.CodeUsage, op, "it holds %d images", len(list)).WithHint("save one alone: docker save NAME >FILE")
	}
	if len(list[0].Layers) == 0 {
		return errors.New("its image has no layers")
	}
	for _, name := range list[0].Layers {
		f, _, err := in.open(name)
		if err != nil {
			return err
		}
		err = u.layer(u.held(f), true)
		f.Close()
		if err != nil {
			return fmt.Errorf("layer %s: %w", short(name), err)
		}
	}
	return nil
}
