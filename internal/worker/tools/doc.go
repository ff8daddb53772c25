// Package tools carries out the tools of the contract that work on files, from
// inside a boundary, with the rights of what runs there.
//
// Its limit: it knows paths and bytes. It starts no program, opens nothing but
// regular files and folders, never a thing below /proc, /sys and /dev, and
// holds no more in memory than a stated part. What it may reach is decided by
// mounts and Landlock, not here.
package tools
