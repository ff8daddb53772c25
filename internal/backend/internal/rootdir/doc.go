// Package rootdir says what the root of a boundary consists of where it is made
// of this machine's system folders or of a prepared folder: which folders and
// files appear, which are generated, and what the generated ones say.
//
// Its limit: it mounts nothing and starts nothing. It reads what everybody may
// read, and writes below the one folder that it is given.
package rootdir
