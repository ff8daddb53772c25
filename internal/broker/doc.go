// Package broker lends secrets to the requests of one task, on the host, and
// takes them back: inside stands a placeholder, which is replaced outside, in one
// place of requests to the destinations that a handle names.
//
// Its limit: a secret is in no record, no error, no argument of a process and no
// environment that caisson makes, and nothing inside ever holds it. The room
// decides nothing about who may be lent what, and opens no way.
package broker
