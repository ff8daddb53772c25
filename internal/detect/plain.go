package detect

import (
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Plain is the words of a command without the options, and the values of those
// that are known to have one, that stand before its first other word: a rule
// about "git push" means "git -C dir push" too. It is nil where there are none.
func Plain(s task.Simple) []string {
	if len(s.Argv) < 2 || !strings.HasPrefix(s.Argv[1], "-") {
		return nil
	}
	p := programs()[s.Program]
	for i := 1; i < len(s.Argv); i++ {
		w := s.Argv[i]
		if !strings.HasPrefix(w, "-") || w == "-" {
			return slices.Concat(s.Argv[:1], s.Argv[i:])
		}
		if p != nil && p.values[w] {
			i++
		}
	}
	return nil
}
