package source

import (
	"strings"
	"testing"
)

const fuzzOID = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

func FuzzParseMerge(f *testing.F) {
	f.Add([]byte(fuzzOID + "\x00"))
	f.Add([]byte(fuzzOID + "\x00100644 " + fuzzOID + " 1\ta\x00100644 " + fuzzOID + " 2\ta\x00\x001\x00a\x00CONFLICT (contents)\x00CONFLICT in a\n\x00"))
	f.Add([]byte(fuzzOID + "\x00\x0099999999\x00a\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseMerge(b)
		if err != nil {
			return
		}
		for _, s := range a.stages {
			if s.path == "" || s.stage < 1 || s.stage > 3 {
				t.Errorf("%+v", s)
			}
		}
		m := &merging{}
		for i := range a.stages {
			a.stages[i].stage = 1 // nothing to show: no git is asked
		}
		if len(m.explain(t.Context(), a)) == 0 {
			t.Error("a conflict without a path")
		}
	})
}

func FuzzParseStages(f *testing.F) {
	f.Add([]byte("100644 " + fuzzOID + " 0\ta\nb\x00"))
	f.Add([]byte("100644 " + fuzzOID + " 0\t"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseStages(b)
		for p := range m {
			if err != nil || p == "" {
				t.Errorf("%q %v", p, err)
			}
		}
	})
}

func FuzzUserIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00" + strings.Repeat("\x00", 20)))
	f.Add([]byte("DIRC\x00\x00\x00\x03\x00\x00\x00\x01" + strings.Repeat("\x00", 60) + "\x40\x01\x60\x00a" + strings.Repeat("\x00", 40)))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, format := range []string{"sha1", "sha256"} {
			x := &userIndex{entries: map[string]*userEntry{}}
			if x.parse(b, format) == nil {
				for p := range x.entries {
					x.find(p)
				}
			}
		}
	})
}

func FuzzCutHunks(f *testing.F) {
	f.Add([]byte("a\n<<<<<<< checkout\nx\n=======\ny\n>>>>>>> task\nb\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := len(cutHunks(b)); n > maxHunk+100 {
			t.Errorf("%d bytes", n)
		}
	})
}
