// Package sshagent stands between programs of a task and the SSH keys of a
// person: it speaks the protocol of SSH agents, lists the keys that were lent and
// signs with them, for a login at a host that was named and for nothing else.
//
// Its limit: it opens no listener, keeps no record and asks nobody; whoever makes
// it says which keys, at which hosts, and is asked before each signature. What it
// does not know it refuses.
package sshagent
