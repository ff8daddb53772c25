// Package stage is the part of the linux backend that runs on the far side of
// clone: it turns a Plan into mounts, masks, Landlock rules and filters.
//
// Its limit: it talks only to the host that started it, decides nothing, and
// is finished before the first untrusted instruction.
package stage
