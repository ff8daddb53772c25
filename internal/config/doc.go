// Package config reads the policy of every source: the operator's folder, the
// user's file, a repository's file, agent definitions. It decodes them strictly
// and says of each value in which file and line it stands.
//
// Its limit: it decides nothing. What counts, and how sources are joined, is
// package policy's; a file that cannot be read as it must be is an error, never
// a file that says nothing.
package config
