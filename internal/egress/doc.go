// Package egress is the only way out of a boundary: it decides about each
// destination, resolves its name on the host, dials the address that it checked,
// and records all of it.
//
// Its limit: no undecided name passes and none is resolved before it was decided
// about. It knows no policy file, no technology and no credential; what may be
// reached is a function that it is given. Its zero values deny.
package egress
