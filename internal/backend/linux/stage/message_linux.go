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
	if err := send(fd, p.encode(), fds); err != nil {
		return err
	}
	r := Rest{Filter: p.WorkerFilter, Workdir: p.Workdir, Landlock: p.Landlock, NoLandlock: p.NoLandlock}
	return send(fd, r.encode(), nil)
}

// SendSpace writes I's part of p in the same way.
func SendSpace(fd int, p *Plan) error {
	one := *p
	one.Steps, one.Env, one.Rlimits, one.UserLimits, one.Way, one.Local, one.Inward = nil, nil, nil, nil, nil, nil, 0
	if err := send(fd, one.encode(), nil); err != nil {
		return err
	}
	r := Rest{Userns: p.Userns, Workdir: p.Workdir, Env: p.Env, Rlimits: p.Rlimits}
	return send(fd, r.encode(), nil)
}

// Receive reads the plan and its descriptors (close-on-exec; the caller closes
// them, BuildRoot does). It reads not one byte more than the message.
func Receive(fd int) (*Plan, []int, error) {
	var p Plan
	b, fds, _, err := receive(fd)
	if err == nil {
		if err = p.decode(b); err != nil {
			closeAll(fds)
		}
	}
	if err != nil {
		return nil, nil, fail("set-up", "receive the plan", err)
	}
	return &p, fds, nil
}

// ReceiveRest reads what follows the plan, and no byte more.
func ReceiveRest(fd int) (*Rest, error) {
	var r Rest
	b, fds, _, err := receive(fd)
	closeAll(fds) // none is sent
	if err == nil {
		err = r.decode(b)
	}
	if err != nil {
		return nil, fail("set-up", "receive the rest of the plan", err)
	}
	return &r, nil
}

// SendReport answers the plan.
func SendReport(fd int, r Report, fds []int) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return send(fd, b, fds)
}

// ReceiveReport reads the answer, its descriptors and, where the socket has
// SO_PASSCRED, who the kernel says sent it (else nil).
func ReceiveReport(fd int) (Report, []int, *unix.Ucred, error) {
	var r Report
	b, fds, cred, err := receive(fd)
	if err == nil {
		if err = json.Unmarshal(b, &r); err != nil {
			closeAll(fds)
		}
	}
	if err != nil {
		return Report{}, nil, nil, fail("set-up", "receive the report", err)
	}
	return r, fds, cred, nil
}

func send(fd int, body []byte, fds []int) error {
	if len(fds) > MaxFDs {
		return fmt.Errorf("%d descriptors do not fit into one message", len(fds))
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

// receive reads one message. Descriptors that came with a message that
// cannot be used are closed.
func receive(fd int) (body []byte, fds []int, cred *unix.Ucred, err error) {
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
			return nil, fds, cred, e
		}
		more, c, e := parseControl(oob[:oobn])
		fds = append(fds, more...)
		if cred == nil {
			cred = c
		}
		switch {
		case e != nil:
			return nil, fds, cred, e
		case flags&unix.MSG_CTRUNC != 0:
			return nil, fds, cred, errors.New("descriptors were cut off")
		case n == 0:
			return nil, fds, cred, io.ErrUnexpectedEOF
		}
		got += n
	}
	n := binary.BigEndian.Uint32(head[:])
	if err := checkLength(n); err != nil {
		return nil, fds, cred, err
	}
	body = make([]byte, n)
	for got := 0; got < len(body); {
		// No room for control data: a descriptor that comes late is dropped by
		// the kernel.
		m, err := unix.Read(fd, body[got:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fds, cred, err
		}
		if m == 0 {
			return nil, fds, cred, io.ErrUnexpectedEOF
		}
		got += m
	}
	return body, fds, cred, nil
}

func parseControl(b []byte) (fds []int, cred *unix.Ucred, err error) {
	msgs, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, nil, err
	}
	for i := range msgs {
		switch msgs[i].Header.Type {
		case unix.SCM_RIGHTS:
			if len(msgs[i].Data)%4 != 0 {
				return fds, cred, errors.New("half a descriptor") // x/sys would panic
			}
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
