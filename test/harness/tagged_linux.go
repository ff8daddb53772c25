package harness

// Build makes the product at out with build tags, for example "faults".
func Build(out, tags string) error { return build(out, "-tags="+tags) }

// GoBuildTagged is GoBuild with build tags and values for the linker to set.
func GoBuildTagged(out, pkg, tags, values string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	return goBuild(root, "-tags="+tags, "-ldflags=-s -w "+values, "-o", out, pkg)
}

// BuildWithout makes the product at out with a worker that goes without one of
// its protections: see internal/sys.Without.
func BuildWithout(out, protection string) error {
	return buildWith(out, []string{"-tags=canary", "-ldflags=-s -w -X " + module + "/internal/sys.without=" + protection})
}
