//go:build !linux

package egress

import "net"

// questions reads questions that came to the address of the socket.
func questions(pc net.PacketConn) asked { return plainQuestions(pc) }
