package stage

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// SendPlan writes p, length-prefixed, with fds on its first byte, and after it
// what W needs when it is sealed. The caller keeps and closes its own copies of
// fds.
func SendPlan(fd int, p *Plan, fds []int) error {
	one := *p
	one.WorkerFilter = nil
	if err := send(fd, &one, fds); err != nil {
		return err
	}
	return send(fd, &Rest{Filter: p.WorkerFilter}, nil)
}

// SendSpace writes I's part of p in the same way.
func SendSpace(fd int, p *Plan) error {
	one := *p
	one.Steps, one.Env, one.Rlimits, one.UserLimits = nil, nil, nil, nil
	if err := send(fd, &one, nil); err != nil {
		return err
	}
	return send(fd, &Rest{Userns: p.Userns, Workdir: p.Workdir, Env: p.Env, Rlimits: p.Rlimits}, nil)
}

// Receive reads the plan and its descriptors (close-on-exec; the caller closes
// them, BuildRoot does). It reads not one byte more than the message.
func Receive(fd int) (*Plan, []int, error) {
	var p Plan
	fds, _, err := receive(fd, &p)
	if err != nil {
		return nil, nil, fail("set-up", "receive the plan", err)
	}
	return &p, fds, nil
}

// ReceiveRest reads what follows the plan, and no byte more.
func ReceiveRest(fd int) (*Rest, error) {
	var r Rest
	fds, _, err := receive(fd, &r)
	closeAll(fds)
	if err != nil {
		return nil, fail("set-up", "receive the rest of the plan", err)
	}
	return &r, nil
}

// SendReport answers the plan.
func SendReport(fd int, r Report, fds []int) error { return send(fd, r, fds) }

// ReceiveReport reads the answer, its descriptors and, where the socket has
// SO_PASSCRED, who the kernel says sent it (else nil).
func ReceiveReport(fd int) (Report, []int, *unix.Ucred, error) {
	var r Report
	fds, cred, err := receive(fd, &r)
	if err != nil {
		return Report{}, nil, nil, fail("set-up", "receive the report", err)
	}
	return r, fds, cred, nil
}

func send(fd int, v any, fds []int) error {
	if len(fds) > MaxFDs {
		return fmt.Errorf("%d descriptors do not fit into one message", len(fds))
	}
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := checkLength(uint32(len(body))); err != nil {
		return err
	}
	msg := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for len(msg) > 0 {
		n, err := unix.SendmsgN(fd, msg, oob, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		msg, oob = msg[n:], nil
	}
	return nil
}

// receive reads one message into v. Descriptors that came with a message that
// cannot be used are closed.
func receive(fd int, v any) (fds []int, cred *unix.Ucred, err error) {
	defer func() {
		if err != nil {
			closeAll(fds)
			fds = nil
		}
	}()
	var head [4]byte
	oob := make([]byte, unix.CmsgSpace(4*MaxFDs)+unix.CmsgSpace(unix.SizeofUcred))
	for got := 0; got < len(head); {
		n, oobn, flags, _, e := unix.Recvmsg(fd, head[got:], oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(e, unix.EINTR) {
			continue
		}
		if e != nil {
			return fds, cred, e
		}
		more, c, e := parseControl(oob[:oobn])
		fds = append(fds, more...)
		if cred == nil {
			cred = c
		}
		switch {
		case e != nil:
			return fds, cred, e
		case flags&unix.MSG_CTRUNC != 0:
			return fds, cred, errors.New("descriptors were cut off")
		case n == 0:
			return fds, cred, io.ErrUnexpectedEOF
		}
		got += n
	}
	n := binary.BigEndian.Uint32(head[:])
	if err := checkLength(n); err != nil {
		return fds, cred, err
	}
	body := make([]byte, n)
	for got := 0; got < len(body); {
		// No room for control data: a descriptor that comes late is dropped by
		// the kernel.
		m, err := unix.Read(fd, body[got:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fds, cred, err
		}
		if m == 0 {
			return fds, cred, io.ErrUnexpectedEOF
		}
		got += m
	}
	return fds, cred, json.Unmarshal(body, v)
}

func parseControl(b []byte) (fds []int, cred *unix.Ucred, err error) {
	msgs, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, nil, err
	}
	for i := range msgs {
		switch msgs[i].Header.Type {
		case unix.SCM_RIGHTS:
			f, err := unix.ParseUnixRights(&msgs[i])
			if err != nil {
				return fds, cred, err
			}
			fds = append(fds, f...)
		case unix.SCM_CREDENTIALS:
			if cred, err = unix.ParseUnixCredentials(&msgs[i]); err != nil {
				return fds, cred, err
			}
		}
	}
	return fds, cred, nil
}

func closeAll(fds []int) {
	for _, f := range fds {
		unix.Close(f)
	}
}
