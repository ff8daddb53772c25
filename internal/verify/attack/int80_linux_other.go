//go:build linux && !amd64

package attack

func int80(nr, a, b, c, d, e uint32) int32 { return -38 }

const x32 = 0

var archCalls []sysCall
