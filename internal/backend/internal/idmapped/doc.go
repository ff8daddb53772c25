// Package idmapped shows folders of root's as another user's, for a program of this
// machine that makes mounts from paths: no owner is changed, and what is made in such
// a folder belongs to root outside.
//
// Its limit: it needs root and a file system that can be id-mapped, and says so where
// it cannot; it removes nothing but mounts and the empty folders under them.
package idmapped
