package linux

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// A boundary's start reads and writes some fifty small files of the kernel. Two
// and three system calls for each are enough; package os makes ten, to offer
// every one of them to its poller.

// readFile returns the content of a small file.
func readFile(path string) ([]byte, error) {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	data, err := readAll(fd, 1024)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return data, nil
}

// readAll reads to the end of what probably fits into room bytes.
func readAll(fd, room int) ([]byte, error) {
	data := make([]byte, 0, room)
	for {
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, data[len(data):cap(data)]) })
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return data, nil
		}
		if data = data[:len(data)+n]; len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}

// writeFile writes value, at once, to a file that exists.
func writeFile(path, value string) error {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	_, err = ignoringEINTR(func() (int, error) { return unix.Write(fd, []byte(value)) })
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func ignoringEINTR(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
