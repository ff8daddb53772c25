// Package hostsockets is the host's half of sockets that were made inside a boundary:
// it takes them over, looks whether each is what was asked for, and answers for a
// backend as its Listeners, Locals and Inward.
//
// Its limit: it makes nothing inside and decides nothing about what crosses.
package hostsockets
