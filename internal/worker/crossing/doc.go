// Package crossing makes, inside a boundary's network namespace, the sockets that
// are the host's: where programs are caught on their way out, and those by which the
// host connects to servers inside; and hands them over.
//
// Its limit: it decides nothing about what crosses, and keeps no end.
package crossing

// Way is where sockets of the host's listen inside.
type Way struct {
	Proxy uint16   // TCP, at 127.0.0.1, for programs that know a proxy
	Ports []uint16 // TCP, at every address of IPv4
	Six   []uint16 // TCP, at every address of IPv6
	At    []string // TCP, at these "address:port" of the loopback interface
}

// DNSPort is where questions for names are answered, at every address.
const DNSPort = 53
