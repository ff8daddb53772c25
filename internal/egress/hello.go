package egress

import (
	"encoding/binary"
	"errors"
)

// What a TLS greeting is refused for.
var (
	errNotTLS    = errors.New("it does not begin with a TLS greeting")
	errHelloForm = errors.New("its TLS greeting is malformed")
	errHelloSize = errors.New("its TLS greeting is too long or comes in pieces")
	errNamesMany = errors.New("its TLS greeting names several servers")
	errNameOdd   = errors.New("its TLS greeting names a server in a form that is not known")
	errECH       = errors.New("its TLS greeting hides a server name (ECH): switch encrypted client hello off in this program")
	errHelloMore = errors.New("more is needed")
)

const (
	recordHeader = 5
	// maxHello is the most that one record holds. A greeting takes one.
	maxHello = 1 << 14

	recordHandshake = 22
	clientHello     = 1

	extServerName = 0
	extECH        = 0xfe0d
	extESNI       = 0xffce // what came before ECH
)

// parseHello reads the first record of a TLS connection. It returns the server
// name, or "" where none is sent. errHelloMore says that b is only its beginning.
//
// A greeting in several records is refused: only programs that hide the name
// from somebody on the way send one, and this parser stays one that is easy to
// check. So are two names, two equal extensions, bytes left over: whatever two
// readers may read differently.
func parseHello(b []byte) (string, error) {
	if len(b) == 0 {
		return "", errHelloMore
	}
	if b[0] != recordHandshake || len(b) > 1 && b[1] != 3 || len(b) > 2 && b[2] > 4 {
		return "", errNotTLS
	}
	if len(b) < recordHeader {
		return "", errHelloMore
	}
	size := int(binary.BigEndian.Uint16(b[3:]))
	switch {
	case size < 4:
		return "", errHelloForm
	case size > maxHello:
		return "", errHelloSize
	case len(b) < recordHeader+4:
		return "", errHelloMore
	}
	if b[5] != clientHello {
		return "", errHelloForm
	}
	if body := int(b[6])<<16 | int(b[7])<<8 | int(b[8]); body > size-4 {
		return "", errHelloSize // it goes on in another record
	} else if body < size-4 {
		return "", errHelloForm
	}
	if len(b) < recordHeader+size {
		return "", errHelloMore
	}
	return helloName(reader(b[recordHeader+4 : recordHeader+size]))
}

func helloName(r reader) (string, error) {
	version, ok := r.number(2)
	if !ok || version>>8 != 3 || !r.skip(32) {
		return "", errHelloForm
	}
	session, ok1 := r.vector(1)
	suites, ok2 := r.vector(2)
	compression, ok3 := r.vector(1)
	if !ok1 || !ok2 || !ok3 || len(session) > 32 || len(suites) < 2 || len(suites)%2 != 0 || len(compression) < 1 {
		return "", errHelloForm
	}
	if len(r) == 0 {
		return "", nil // no extensions, so no name
	}
	all, ok := r.vector(2)
	if !ok || len(r) != 0 {
		return "", errHelloForm
	}
	name := ""
	seen := map[int]bool{}
	for len(all) > 0 {
		kind, ok1 := all.number(2)
		data, ok2 := all.vector(2)
		if !ok1 || !ok2 || seen[kind] {
			return "", errHelloForm
		}
		seen[kind] = true
		switch kind {
		case extECH, extESNI:
			return "", errECH
		case extServerName:
			var err error
			if name, err = serverName(data); err != nil {
				return "", err
			}
		}
	}
	return name, nil
}

func serverName(data reader) (string, error) {
	list, ok := data.vector(2)
	if !ok || len(data) != 0 {
		return "", errHelloForm
	}
	kind, ok1 := list.number(1)
	name, ok2 := list.vector(2)
	switch {
	case !ok1 || !ok2 || len(name) == 0:
		return "", errHelloForm
	case kind != 0:
		return "", errNameOdd
	case len(list) != 0:
		return "", errNamesMany
	}
	return string(name), nil
}

// reader takes parts off the front of what is left.
type reader []byte

func (r *reader) skip(n int) bool {
	if len(*r) < n {
		return false
	}
	*r = (*r)[n:]
	return true
}

func (r *reader) number(bytes int) (int, bool) {
	if len(*r) < bytes {
		return 0, false
	}
	n := 0
	for _, c := range (*r)[:bytes] {
		n = n<<8 | int(c)
	}
	*r = (*r)[bytes:]
	return n, true
}

// vector takes a length of so many bytes, and what it counts.
func (r *reader) vector(bytes int) (reader, bool) {
	n, ok := r.number(bytes)
	if !ok || len(*r) < n {
		return nil, false
	}
	v := (*r)[:n]
	*r = (*r)[n:]
	return v, true
}
