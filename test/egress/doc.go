// Package egress tests with the real program what leaves a boundary: real clients
// inside, real servers in a network namespace of the test's own, where there are
// public addresses, a LAN, a metadata service and a name server that nobody else
// sees. What must fail inside is shown to work outside.
//
// Its limit: it shows what crosses; parsing and limits are proved in
// internal/egress. It never uses the machine's own network.
package egress
