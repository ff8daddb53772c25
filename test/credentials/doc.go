// Package credentials holds the product to what it lends: SSH's own agent, client
// and server, git and its server, in a network of their own, each attack beside
// the same one without a boundary.
//
// Its limit: tests only. What stands behind the servers is told by the servers
// themselves, never by the task.
package credentials
