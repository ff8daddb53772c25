// Package exhausted runs the product on a machine that is out of something:
// space, inodes, descriptors, a writable place, a supervisor that answers. Every
// case has a defined outcome: the documented exit status, an error with the next
// step, nothing lost, and everything goes on once there is room again.
//
// Its limit: what it takes away it takes away with small real file systems and
// kernel limits of this machine; a failing disk is not among them.
package exhausted
