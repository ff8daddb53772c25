package inside

import (
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// A body that is taken names exactly the descriptors that came, and no more
// memory than a call may have.
func FuzzToolBody(f *testing.F) {
	f.Add([]byte(`{"tool":"read_file","args":{"path":"a"}}`), 0)
	f.Add([]byte(`{"tool":"write_file","size":40000,"in":true}`), 2)
	f.Add([]byte(`{"tool":"write_file","size":-1}`), 1)
	f.Add([]byte(`{"tool":"write_file","size":1,"args":{}}`), 1)
	f.Add([]byte(`{"tool":"a","tool":"b"}`), 0)
	f.Add([]byte(`{"tool":"grep","args":{"pattern":"x"},"found":true}`), 0)
	f.Fuzz(func(t *testing.T, raw []byte, fds int) {
		var b frame.ToolBody
		if frame.Decode(raw, &b) != nil || !fits(&b, fds) {
			return
		}
		want := 0
		if b.Size > 0 {
			want++
		}
		if b.In {
			want++
		}
		if fds != want || b.Size < 0 || b.Size > frame.ToolMax || b.Size > 0 && len(b.Args) > 0 {
			t.Fatalf("%s with %d descriptors was taken", raw, fds)
		}
	})
}
