// Package docker makes boundaries with a container engine that speaks Docker's
// API: Docker Engine from 20.10 on and Podman from 4.3 on, with root's rights or a
// user's.
//
// Its limit: it asks the engine for what a plan names and for nothing more, never
// for a privilege that lets a container out, and it touches no container that does
// not carry its own labels. It has an image pulled only
// when told to.
package docker
