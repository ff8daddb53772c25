// Package far plays what is beyond this machine: a name server and web servers at
// addresses that are public elsewhere, in a network namespace of the process's own,
// whose names and certificates every program in its mount namespace believes. What
// reaches them and must not, they note.
//
// Its limit: it needs namespaces of its own and says so where it has none; nothing of
// it reaches a network. It knows no boundary and judges nothing.
package far
