// Package callfilter assembles the system call filters of programs inside: what every
// backend whose tools run on the host's kernel loads around them.
//
// Its limit: it builds programs and loads none; what one refuses is in the tables
// of this package, whatever the backend.
package callfilter
