package inventory

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/task"
)

// rawPrefix marks a string of the stored view that JSON could not hold as it
// is: paths and arguments may be any bytes, and a path that comes back changed
// would make us look after the wrong one.
const rawPrefix = "\x00base64:"

func encodeView(v *task.View) ([]byte, error) {
	c := mapStrings(reflect.ValueOf(*v), func(s string) string {
		if utf8.ValidString(s) && !strings.HasPrefix(s, rawPrefix) {
			return s
		}
		return rawPrefix + base64.StdEncoding.EncodeToString([]byte(s))
	}).Interface().(task.View)
	// These live in tables of their own.
	c.Resources, c.Supervisor = nil, nil
	return json.Marshal(c)
}

func decodeView(b []byte, v *task.View) error {
	var c task.View
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	var derr error
	*v = mapStrings(reflect.ValueOf(c), func(s string) string {
		enc, ok := strings.CutPrefix(s, rawPrefix)
		if !ok {
			return s
		}
		raw, err := base64.StdEncoding.DecodeString(enc)
		if err != nil {
			derr = err
		}
		return string(raw)
	}).Interface().(task.View)
	return derr
}

var timeType = reflect.TypeFor[time.Time]()

// mapStrings returns a copy of v in which f was applied to every string, map
// keys included. What holds no strings may be shared with v.
func mapStrings(v reflect.Value, f func(string) string) reflect.Value {
	switch v.Kind() {
	case reflect.String:
		return reflect.ValueOf(f(v.String())).Convert(v.Type())
	case reflect.Struct:
		if v.Type() == timeType {
			return v
		}
		c := reflect.New(v.Type()).Elem()
		for i := range v.NumField() {
			c.Field(i).Set(mapStrings(v.Field(i), f))
		}
		return c
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		c := reflect.New(v.Type().Elem())
		c.Elem().Set(mapStrings(v.Elem(), f))
		return c
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			c.Index(i).Set(mapStrings(v.Index(i), f))
		}
		return c
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		c := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			c.SetMapIndex(mapStrings(it.Key(), f), mapStrings(it.Value(), f))
		}
		return c
	}
	return v
}
