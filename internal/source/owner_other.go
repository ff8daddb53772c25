//go:build !unix

package source

import "os"

func deviceOf(string) uint64 { return 0 }

func ownerOf(string) int { return os.Geteuid() }

func mayWrite(string) bool { return true }

// noWait is nothing here: there are no named pipes among files.
const noWait = 0

// Inode cannot be told on this platform.
func Inode(p string) uint64 { return 0 }
