package task

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrorForm carries an error to another of our processes, with the code, hint
// and detail of the first Error in its chain.
type ErrorForm struct {
	Code   Code            `json:"code"`
	Op     string          `json:"op"`
	Msg    string          `json:"msg"`
	Hint   string          `json:"hint"`
	Detail json.RawMessage `json:"detail,omitempty"`
	Text   string          `json:"text,omitempty"` // Detail for a person, when it has such a form
}

// FormOf returns err's form, nil for nil.
func FormOf(err error) *ErrorForm {
	if err == nil {
		return nil
	}
	f := &ErrorForm{Code: CodeOf(err), Msg: err.Error(), Hint: HintOf(err)}
	var e *Error
	if errors.As(err, &e) {
		f.Op = e.Op
		if e.Detail != nil {
			f.Detail, _ = json.Marshal(e.Detail)
			if s, ok := e.Detail.(fmt.Stringer); ok {
				f.Text = s.String()
			}
		}
	}
	return f
}

// Err returns the error that f carries, nil for nil.
func (f *ErrorForm) Err() error {
	if f == nil {
		return nil
	}
	e := &Error{Code: f.Code, Op: f.Op, Msg: f.Msg, Hint: f.Hint}
	if len(f.Detail) > 0 {
		e.Detail = f.Detail
		if f.Text != "" {
			e.Detail = told{f.Detail, f.Text}
		}
	}
	return e
}

// told is an error's detail as another process gave it: it looks and marshals
// as it did there.
type told struct {
	raw  json.RawMessage
	text string
}

func (t told) MarshalJSON() ([]byte, error) { return t.raw, nil }
func (t told) String() string               { return t.text }

// Raw returns texts that may be any bytes in a form that survives JSON.
func Raw(l []string) [][]byte {
	out := make([][]byte, len(l))
	for i := range l {
		out[i] = []byte(l[i])
	}
	return out
}

// Texts reverses Raw.
func Texts(l [][]byte) []string {
	var out []string
	for _, b := range l {
		out = append(out, string(b))
	}
	return out
}
