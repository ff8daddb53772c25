package sys

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
)

// Dirs are the folders of the calling user's installation. They are only
// computed; PrivateDir creates and checks them.
type Dirs struct {
	Home    string // of the user; empty when there is none
	State   string // durable
	Runtime string // gone after a reboot
	Config  string // read only; may not exist
}

// ErrNoHome says that neither the environment nor the user database names a
// home folder.
var ErrNoHome = errors.New("no home folder: HOME is unset and the user database has none")

// FindDirs computes the folders from the environment (os.Getenv when getenv is
// nil). CAISSON_STATE_DIR and CAISSON_RUNTIME_DIR win and must be absolute;
// relative XDG variables are ignored, as their specification says.
func FindDirs(getenv func(string) string) (Dirs, error) {
	if getenv == nil {
		getenv = os.Getenv
	}
	d := Dirs{Home: home(getenv)}
	var err error
	if d.State, err = override(getenv, "CAISSON_STATE_DIR"); err != nil {
		return Dirs{}, err
	}
	if d.Runtime, err = override(getenv, "CAISSON_RUNTIME_DIR"); err != nil {
		return Dirs{}, err
	}
	if d.State == "" {
		if d.State, err = xdg(getenv, "XDG_STATE_HOME", d.Home, ".local/state"); err != nil {
			return Dirs{}, err
		}
	}
	if d.Runtime == "" {
		d.Runtime = runtimeDir(getenv)
	}
	// Without a home there is no user configuration; that alone is no error.
	d.Config, _ = xdg(getenv, "XDG_CONFIG_HOME", d.Home, ".config")
	return d, nil
}

func override(getenv func(string) string, name string) (string, error) {
	p := getenv(name)
	if p != "" && !filepath.IsAbs(p) {
		return "", fmt.Errorf("%s must be an absolute path, not %q", name, p)
	}
	if p == "" {
		return "", nil
	}
	return filepath.Clean(p), nil
}

func xdg(getenv func(string) string, name, home, below string) (string, error) {
	if p := getenv(name); filepath.IsAbs(p) {
		return filepath.Join(p, "caisson"), nil
	}
	if home == "" {
		return "", ErrNoHome
	}
	return filepath.Join(home, filepath.FromSlash(below), "caisson"), nil
}

func home(getenv func(string) string) string {
	name := "HOME"
	if runtime.GOOS == "windows" {
		name = "USERPROFILE"
	}
	if h := getenv(name); filepath.IsAbs(h) {
		return filepath.Clean(h)
	}
	// By id: user.Current would read HOME again.
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil && filepath.IsAbs(u.HomeDir) {
		return filepath.Clean(u.HomeDir)
	}
	return ""
}

// runtimeDir skips folders of another user: sudo and su pass XDG_RUNTIME_DIR on.
func runtimeDir(getenv func(string) string) string {
	if p := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(p) && ownedByUs(filepath.Clean(p)) {
		return filepath.Join(p, "caisson")
	}
	uid := os.Geteuid()
	if uid == 0 {
		return "/run/caisson"
	}
	if p := "/run/user/" + strconv.Itoa(uid); uid > 0 && ownedByUs(p) {
		return filepath.Join(p, "caisson")
	}
	return filepath.Join(os.TempDir(), "caisson-"+strconv.Itoa(uid))
}
