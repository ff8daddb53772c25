// Package search lists folders and finds files and lines in them: the tools
// list_dir, glob and grep, with git's ignore rules.
//
// Its limit: it reads regular files and folders below one open folder, never
// through a symbolic link, and changes nothing. It takes names as bytes. Who may
// call it and what a path of a call means is decided by who calls.
package search
