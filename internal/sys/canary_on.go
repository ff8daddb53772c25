//go:build canary && linux

package sys

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Canary says that this build mirrors what goes over the worker's channel and
// may leave protections out, for the tests that prove each of them.
const Canary = true

// without names what this build leaves out, separated by commas: the linker
// sets it (-X). There is no other way to set it.
var without string

// Protections are the names that Without knows.
var Protections = []string{"cloexec", "close_range", "proc", "pidns", "userns", "landlock", "dumpable", "unreadable", "seccomp", "mac", "sender", "scores", "paths"}

// Without reports whether this build leaves the protection called name out.
func Without(name string) bool {
	for n := range strings.SplitSeq(without, ",") {
		if n == name || n == "all" {
			return true
		}
	}
	return false
}

// Expose takes the machine's own rules on tracing (Yama) from this process, where
// they would hide what a test is about.
func Expose() { _ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0) }

// MirrorTo takes the lines of this process and of those that it started. Nil, as
// inside, is standard error: a pipe to the host that no tool is given.
var MirrorTo func(b []byte)

// MirrorRaw gets the bytes that are mirrored by their digest, when set.
var MirrorRaw func(what string, parts ...[]byte)

// Mirror tells the test what this process sends or takes: one line of its role,
// what, and a digest of parts. A line is one write, so lines stay whole.
func Mirror(what string, parts ...[]byte) {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	role := "host"
	if MirrorTo == nil && len(os.Args) > 1 {
		role = os.Args[1]
	}
	line := []byte("canary " + role + " " + what + " " + hex.EncodeToString(h.Sum(nil)[:12]) + "\n")
	if MirrorRaw != nil {
		MirrorRaw(what, parts...)
	}
	if MirrorTo != nil {
		MirrorTo(line)
		return
	}
	_, _ = os.Stderr.Write(line)
}

// Streams counts what other processes still have to say to MirrorTo: a boundary's
// last lines may lie in its pipe when its processes are gone.
var Streams atomic.Int32

// MirrorStream says that such a pipe was opened (1), or read to its end (-1).
func MirrorStream(delta int32) { Streams.Add(delta) }

// Mirrored hands on what another process of this build mirrored.
func Mirrored(b []byte) {
	if MirrorTo != nil {
		MirrorTo(b)
	}
}
