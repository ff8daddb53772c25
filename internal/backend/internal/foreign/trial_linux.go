package foreign

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/sys"
)

// trial begins the installation's name of a boundary that is made to find out.
const trial = "trial"

// TrialInstance is the installation that a trial of a driver's is said to be of. A
// trial is in no inventory: its name says which process made it, so that another one
// can take away what one that was killed left behind.
func TrialInstance(driver string) (string, error) {
	id, err := sys.Self()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%sx%dx%dx%d", trial, driver, id.PID, id.Start, id.PIDNS), nil
}

// Left is what a trial left behind: a generated folder, and the token in it, empty
// where its maker died before.
type Left struct{ Dir, Token string }

// LeftTrials lists the folders in dir of trials of a driver's whose process is
// certainly dead. Their names begin with prefix.
func LeftTrials(dir, prefix, driver string) []Left {
	self, err := sys.Self()
	if err != nil {
		return nil
	}
	entries, _ := os.ReadDir(dir) // what is not there holds nothing
	var out []Left
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), prefix+trial+driver+"x")
		if !ok {
			continue
		}
		made, _, ok := strings.Cut(name, "-")
		id := self // the same boot: of another one the start is another
		if n, err := fmt.Sscanf(strings.ReplaceAll(made, "x", " "), "%d %d %d", &id.PID, &id.Start, &id.PIDNS); err != nil || n != 3 || !ok || id.PIDNS != self.PIDNS || sys.Look(id) != sys.Dead {
			continue
		}
		l := Left{Dir: filepath.Join(dir, e.Name())}
		if b, err := os.ReadFile(filepath.Join(l.Dir, TokenFile)); err == nil {
			l.Token = string(b)
		}
		out = append(out, l)
	}
	return out
}
