package task

import (
	"fmt"
	"strconv"
	"strings"
)

// Port is a port of a task that a server waits at, or that the host offers.
type Port struct {
	Inside    int      `json:"inside"`
	Host      int      `json:"host,omitempty"`      // on the host's 127.0.0.1; 0: it is not published
	Listening bool     `json:"listening,omitempty"` // a server waits there now
	At        []string `json:"at,omitempty"`        // the addresses inside at which it does
	URL       string   `json:"url,omitempty"`       // by name, where it speaks HTTP
}

// PortsReport is what `caisson ports` prints.
type PortsReport struct {
	Schema string `json:"schema"` // "caisson.ports/1"
	Task   ID     `json:"task"`
	Ports  []Port `json:"ports"`
}

// ParsePublish reads PORT or HOST-PORT:PORT. A host of 0 is left to caisson.
func ParsePublish(s string) (Port, error) {
	host, inside, two := strings.Cut(s, ":")
	if !two {
		host, inside = "", s
	}
	p := Port{}
	var err error
	if p.Inside, err = portNumber(inside); err == nil && two {
		p.Host, err = portNumber(host)
	}
	if err != nil {
		return Port{}, fmt.Errorf("%.60q is no PORT and no HOST-PORT:PORT, where a port is a number from 1 to 65535", s)
	}
	return p, nil
}

func portNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err == nil && (n == 0 || strings.HasPrefix(s, "+")) {
		err = strconv.ErrRange
	}
	return int(n), err
}
