package sys

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

type packed struct {
	Text   string
	Bytes  []byte
	List   []string
	Map    map[string]bool
	Small  int8
	Large  uint64
	Real   float64
	When   time.Time
	For    time.Duration
	Inner  *packed
	Inners []packed
	Flag   bool
}

func TestPack(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	full := packed{
		Text: "\xff\x00not UTF-8", Bytes: []byte{0, 1, 255}, List: []string{"", "a"}, Map: map[string]bool{"a": true, "b": false},
		Small: -128, Large: math.MaxUint64, Real: -0.5, When: when, For: -time.Hour, Flag: true,
		Inner: &packed{Text: "x"}, Inners: []packed{{}, {Inner: &packed{Small: 1}}},
	}
	for name, v := range map[string]packed{
		"zero": {}, "full": full,
		"empty is not nil": {Bytes: []byte{}, List: []string{}, Map: map[string]bool{}, Inners: []packed{}, Inner: &packed{}},
	} {
		b, err := Pack(v)
		if err != nil {
			t.Fatal(name, err)
		}
		var got packed
		if err := Unpack(b, &got); err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("%s: %v\n%+v\n%+v", name, err, got, v)
		}
		// Every beginning of it, and more than it, is refused.
		for n := range len(b) {
			if err := Unpack(b[:n:n], &got); err == nil {
				t.Errorf("%s: %d of %d bytes are taken", name, n, len(b))
			}
		}
		if err := Unpack(append(bytes.Clone(b), 0), &got); err == nil {
			t.Errorf("%s: a byte too many is taken", name)
		}
	}
}

// TestPackRefuses: nothing is left out silently.
func TestPackRefuses(t *testing.T) {
	for name, v := range map[string]any{
		"unexported": struct{ a int }{1}, "func": struct{ F func() }{}, "interface": struct{ E any }{1}, "channel": make(chan int), "nothing": nil,
		"deep": []struct{ P *struct{ c chan int } }{{&struct{ c chan int }{}}},
	} {
		if _, err := Pack(v); err == nil || !strings.Contains(err.Error(), "pack:") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if Unpack([]byte{1, 0, 0, 0, 0, 0, 0, 0}, 1) == nil || Unpack(nil, (*int)(nil)) == nil {
		t.Error("unpacked into nothing")
	}
}

func FuzzUnpack(f *testing.F) {
	b, _ := Pack(packed{Text: "x", List: []string{"a"}, Map: map[string]bool{"k": true}, Inner: &packed{}})
	f.Add(b)
	f.Add(bytes.Repeat([]byte{255}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v packed
		if Unpack(b, &v) != nil {
			return
		}
		again, err := Pack(v)
		var w packed
		if err == nil {
			err = Unpack(again, &w)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
