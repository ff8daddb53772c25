//go:build !linux

package workerprog

// Main says that a boundary is always Linux.
func Main([]string) int {
	println("caisson-worker: runs on Linux only")
	return 1
}
