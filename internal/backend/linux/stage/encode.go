package stage

import (
	"encoding/binary"
	"errors"
	"slices"
)

// Plan and Rest travel in an encoding of their own: numbers of eight bytes,
// little endian; texts and lists behind their length; in the order of the
// fields. W has just been started and would spend more time on learning how to
// read JSON than on the message.

type encoder []byte

func (e *encoder) num(n uint64) { *e = binary.LittleEndian.AppendUint64(*e, n) }

func (e *encoder) text(s string) {
	e.num(uint64(len(s)))
	*e = append(*e, s...)
}

func (e *encoder) flag(b bool) {
	n := uint64(0)
	if b {
		n = 1
	}
	e.num(n)
}

func each[T any](e *encoder, list []T, one func(T)) {
	e.num(uint64(len(list)))
	for _, v := range list {
		one(v)
	}
}

func (e *encoder) texts(l []string) { each(e, l, e.text) }

func (e *encoder) steps(l []Step) {
	each(e, l, func(s Step) {
		e.text(s.Op)
		e.text(s.Source)
		e.num(uint64(s.FD))
		e.text(s.Target)
		e.texts(s.Flags)
		e.text(s.Data)
		e.num(s.Dev)
		e.num(s.Ino)
		e.num(uint64(s.Mode))
	})
}

func (e *encoder) rest(r Rest) {
	e.text(string(r.Filter))
	e.flag(r.Userns)
	e.text(r.Workdir)
	e.texts(r.Env)
	each(e, r.Rlimits, func(l Rlimit) {
		e.num(uint64(l.Resource))
		e.num(l.Soft)
		e.num(l.Hard)
	})
	e.texts(r.Landlock)
	e.flag(r.NoLandlock)
}

func (p *Plan) encode() []byte {
	var e encoder
	e.num(uint64(p.UID))
	e.num(uint64(p.GID))
	e.text(p.Hostname)
	e.steps(p.Steps)
	e.steps(p.Space)
	e.texts(p.Landlock)
	e.flag(p.NoLandlock)
	e.flag(p.Ptrace)
	e.rest(Rest{Filter: p.ToolFilter, Userns: p.Userns, Workdir: p.Workdir, Env: p.Env, Rlimits: p.Rlimits})
	names := make([]string, 0, len(p.UserLimits))
	for n := range p.UserLimits {
		names = append(names, n)
	}
	slices.Sort(names)
	each(&e, names, func(n string) {
		e.text(n)
		e.num(uint64(p.UserLimits[n]))
	})
	e.flag(p.Way != nil)
	if w := p.Way; w != nil {
		e.num(uint64(w.Proxy))
		each(&e, w.Ports, func(n uint16) { e.num(uint64(n)) })
		each(&e, w.Six, func(n uint16) { e.num(uint64(n)) })
		e.texts(w.At)
	}
	e.texts(p.Local)
	e.num(uint64(p.Inward))
	return e
}

func (r *Rest) encode() []byte {
	var e encoder
	e.rest(*r)
	return e
}

var errEncoding = errors.New("the message is not one of ours")

// decoder reads what encoder wrote. After a mistake everything is empty.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n uint64) []byte {
	if d.bad || n > uint64(len(d.b)) {
		d.b, d.bad = nil, true
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) num() uint64 {
	if p := d.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func (d *decoder) text() string { return string(d.take(d.num())) }
func (d *decoder) flag() bool   { return d.num() == 1 }

func some[T any](d *decoder, one func() T) []T {
	var out []T
	for n := d.num(); n > 0 && !d.bad; n-- {
		out = append(out, one())
	}
	return out
}

func (d *decoder) texts() []string { return some(d, d.text) }

func (d *decoder) steps() []Step {
	return some(d, func() Step {
		return Step{Op: d.text(), Source: d.text(), FD: int(d.num()), Target: d.text(), Flags: d.texts(), Data: d.text(), Dev: d.num(), Ino: d.num(), Mode: uint32(d.num())}
	})
}

func (d *decoder) rest() Rest {
	return Rest{Filter: []byte(d.text()), Userns: d.flag(), Workdir: d.text(), Env: d.texts(), Rlimits: some(d, func() Rlimit {
		return Rlimit{Resource: int(d.num()), Soft: d.num(), Hard: d.num()}
	}), Landlock: d.texts(), NoLandlock: d.flag()}
}

func (d *decoder) end() error {
	if d.bad || len(d.b) != 0 {
		return errEncoding
	}
	return nil
}

func (p *Plan) decode(b []byte) error {
	d := &decoder{b: b}
	p.UID, p.GID, p.Hostname = int(d.num()), int(d.num()), d.text()
	p.Steps, p.Space = d.steps(), d.steps()
	p.Landlock, p.NoLandlock, p.Ptrace = d.texts(), d.flag(), d.flag()
	r := d.rest()
	p.ToolFilter, p.Userns, p.Workdir, p.Env, p.Rlimits = r.Filter, r.Userns, r.Workdir, r.Env, r.Rlimits
	for n := d.num(); n > 0 && !d.bad; n-- {
		if p.UserLimits == nil {
			p.UserLimits = map[string]int{}
		}
		name := d.text()
		p.UserLimits[name] = int(d.num())
	}
	if d.flag() {
		p.Way = &Way{Proxy: uint16(d.num()), Ports: some(d, func() uint16 { return uint16(d.num()) }), Six: some(d, func() uint16 { return uint16(d.num()) }), At: d.texts()}
	}
	p.Local, p.Inward = d.texts(), int(d.num())
	return d.end()
}

func (r *Rest) decode(b []byte) error {
	d := &decoder{b: b}
	*r = d.rest()
	return d.end()
}
