// Package verify runs the attacks of package attack against a boundary on this
// machine, and the same outside as controls, and says per property what came of
// it. A boundary of caisson's is made by the program itself, as a person would
// make it; others are entered by the command that a person gives.
//
// Its limit: it changes nothing but what it made. It decides nothing about tasks,
// and what comes out of a boundary it believes only against the boundary.
package verify
