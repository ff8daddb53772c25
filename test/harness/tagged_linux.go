package harness

// Build makes the product at out with build tags, for example "faults".
func Build(out, tags string) error { return build(out, "-tags="+tags) }
