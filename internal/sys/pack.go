package sys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"
)

// Pack encodes v, exactly, for the same build of this program: booleans, numbers,
// texts of any bytes, times (to the nanosecond, without a monotonic reading),
// lists, maps, pointers and structs of exported fields. A value of any other type
// is an error: nothing is left out silently. It neither needs nor leaves the
// tables that the encoders of the standard library build for each type.
func Pack(v any) ([]byte, error) {
	var p packer
	if err := p.put(reflect.ValueOf(v)); err != nil {
		return nil, err
	}
	return p.b, nil
}

// Unpack decodes into what to points to, which is of the type that was packed.
// On error its content is undefined.
func Unpack(b []byte, to any) error {
	v := reflect.ValueOf(to)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return errors.New("unpack: not a pointer")
	}
	u := unpacker{b: b}
	u.get(v.Elem())
	if u.err == nil && len(u.b) != 0 {
		u.err = errPacked
	}
	return u.err
}

var errPacked = errors.New("unpack: not what was packed")

var timeType = reflect.TypeFor[time.Time]()

type packer struct{ b []byte }

func (p *packer) num(n uint64) { p.b = binary.LittleEndian.AppendUint64(p.b, n) }

// size writes the length of a list, a map or a pointer; nil is told apart.
func (p *packer) size(v reflect.Value, n int) bool {
	if v.IsNil() {
		p.num(0)
		return false
	}
	p.num(uint64(n) + 1)
	return true
}

func (p *packer) put(v reflect.Value) error {
	if !v.IsValid() {
		return errors.New("pack: nothing")
	}
	t := v.Type()
	switch t.Kind() {
	case reflect.Bool:
		p.num(map[bool]uint64{true: 1}[v.Bool()])
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.num(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		p.num(v.Uint())
	case reflect.Float32, reflect.Float64:
		p.num(math.Float64bits(v.Float()))
	case reflect.String:
		p.num(uint64(v.Len()))
		p.b = append(p.b, v.String()...)
	case reflect.Slice:
		if !p.size(v, v.Len()) {
			return nil
		}
		if t.Elem().Kind() == reflect.Uint8 {
			p.b = append(p.b, v.Bytes()...)
			return nil
		}
		for i := range v.Len() {
			if err := p.put(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		if !p.size(v, v.Len()) {
			return nil
		}
		for it := v.MapRange(); it.Next(); {
			if err := errors.Join(p.put(it.Key()), p.put(it.Value())); err != nil {
				return err
			}
		}
	case reflect.Pointer:
		if p.size(v, 0) {
			return p.put(v.Elem())
		}
	case reflect.Struct:
		if t == timeType {
			b, err := v.Interface().(time.Time).MarshalBinary()
			p.num(uint64(len(b)))
			p.b = append(p.b, b...)
			return err
		}
		for i := range t.NumField() {
			if f := t.Field(i); !f.IsExported() {
				return fmt.Errorf("pack: %s of %s is not exported", f.Name, t)
			}
			if err := p.put(v.Field(i)); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("pack: a value of type %s", t)
	}
	return nil
}

type unpacker struct {
	b   []byte
	err error
}

func (u *unpacker) take(n uint64) []byte {
	if u.err != nil || n > uint64(len(u.b)) {
		u.b, u.err = nil, errPacked
		return nil
	}
	p := u.b[:n:n]
	u.b = u.b[n:]
	return p
}

func (u *unpacker) num() uint64 {
	if p := u.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// size reads what packer.size wrote. An element has a byte at least, or nobody
// could have packed so many.
func (u *unpacker) size() (n int, is bool) {
	switch s := u.num(); {
	case s == 0:
		return 0, false
	case s-1 > uint64(len(u.b)):
		u.err = errPacked
		return 0, false
	default:
		return int(s - 1), true
	}
}

func (u *unpacker) get(v reflect.Value) {
	t := v.Type()
	switch t.Kind() {
	case reflect.Bool:
		v.SetBool(u.num() == 1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(u.num()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(u.num())
	case reflect.Float32, reflect.Float64:
		v.SetFloat(math.Float64frombits(u.num()))
	case reflect.String:
		v.SetString(string(u.take(u.num())))
	case reflect.Slice:
		n, is := u.size()
		if !is {
			v.SetZero()
			return
		}
		if t.Elem().Kind() == reflect.Uint8 {
			v.SetBytes(append([]byte{}, u.take(uint64(n))...))
			return
		}
		v.Set(reflect.MakeSlice(t, 0, min(n, 1024)))
		for ; n > 0 && u.err == nil; n-- {
			e := reflect.New(t.Elem()).Elem()
			u.get(e)
			v.Set(reflect.Append(v, e))
		}
	case reflect.Map:
		n, is := u.size()
		if !is {
			v.SetZero()
			return
		}
		v.Set(reflect.MakeMap(t))
		for ; n > 0 && u.err == nil; n-- {
			k, e := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
			u.get(k)
			u.get(e)
			v.SetMapIndex(k, e)
		}
	case reflect.Pointer:
		if _, is := u.size(); !is {
			v.SetZero()
			return
		}
		v.Set(reflect.New(t.Elem()))
		u.get(v.Elem())
	case reflect.Struct:
		if t == timeType {
			if err := v.Addr().Interface().(*time.Time).UnmarshalBinary(u.take(u.num())); err != nil && u.err == nil {
				u.err = errPacked
			}
			return
		}
		for i := range t.NumField() {
			if !t.Field(i).IsExported() {
				u.err = errPacked
				return
			}
			u.get(v.Field(i))
		}
	default:
		u.err = errPacked
	}
}
