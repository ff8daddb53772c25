package source

import (
	"context"
	"path"
	"strings"
)

const (
	maxAliases   = 64 // other names of one path that are judged
	maxAliasHops = 8  // links on the way to one of them
)

// judgeAliases applies the rules of names to the other names that a changed
// path has through links which the result did not change: with .claude -> tools
// in the base, a change of tools/settings.json is one of the agent's settings.
// Changed links are listed themselves, so what they lead to is not.
func (r *Result) judgeAliases(ctx context.Context, cs []rawChange, t *riskTree, l *riskList) error {
	a, err := r.aliases(ctx, cs, t)
	if err != nil || len(a) == 0 {
		return err
	}
	for i := range cs {
		for _, alias := range a.of(string(cs[i].Path)) {
			cs[i].judgeAs(foldPath(alias), "through a link it is also "+showRisk(alias)+": ", l)
		}
	}
	return nil
}

// riskAliases is the paths of links by the folded path that they lead to; "" is
// the whole tree.
type riskAliases map[string][]string

// aliases reads the links of the tree that are as they were.
func (r *Result) aliases(ctx context.Context, cs []rawChange, t *riskTree) (riskAliases, error) {
	changed := map[string]bool{}
	for i := range cs {
		changed[string(cs[i].Path)] = true
	}
	var wants []blobWant
	var paths []string
	for p, oid := range t.links {
		if !changed[p] {
			wants = append(wants, blobWant{oid: oid, max: maxLinkTarget + 1})
			paths = append(paths, p)
		}
	}
	a := riskAliases{}
	i := -1
	err := r.readBlobs(ctx, wants, func(_ blobWant, got *blobGot) {
		i++
		if got == nil || got.size > maxLinkTarget {
			return // no system can follow it
		}
		if to, ok := leadsTo(paths[i], string(got.data)); ok {
			key := foldKey(to)
			a[key] = append(a[key], paths[i])
		}
	})
	return a, err
}

// foldKey is a path as a file system without case may take it.
func foldKey(p string) string { return strings.Join(foldPath(p), "/") }

// leadsTo resolves a link's target as text, to a path of the tree.
func leadsTo(link, target string) (string, bool) {
	target = strings.ReplaceAll(target, `\`, "/") // as Windows does
	if target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return "", false
	}
	to := path.Join(path.Dir(link), target)
	switch {
	case to == ".":
		return "", true
	case to == "..", strings.HasPrefix(to, "../"), to == link:
		return "", false
	}
	return to, true
}

// of returns the other names of a path, nearest first.
func (a riskAliases) of(p string) []string {
	seen := map[string]bool{p: true}
	var out []string
	names := []string{p}
	for range maxAliasHops {
		var next []string
		for _, name := range names {
			for at := 0; at >= 0 && len(out) < maxAliases; {
				folder, rest := name[:at], name[at:]
				for _, link := range a[foldKey(folder)] {
					alias := link + rest
					if at == 0 {
						alias = link + "/" + name
					}
					if !seen[alias] && len(out) < maxAliases {
						seen[alias] = true
						out = append(out, alias)
						next = append(next, alias)
					}
				}
				if at == len(name) {
					break
				}
				from := at
				if at > 0 {
					from++
				}
				if n := strings.IndexByte(name[from:], '/'); n >= 0 {
					at = from + n
				} else {
					at = len(name)
				}
			}
		}
		names = next
	}
	return out
}
