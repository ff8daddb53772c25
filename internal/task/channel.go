package task

// Assurance says what makes a message on a boundary's channel the worker's own.
// The zero value claims nothing.
type Assurance string

// The kinds of assurance, best first.
const (
	KernelObject Assurance = "kernel-object" // inherited socket without a name; the kernel names the sender of every frame
	DaemonExec   Assurance = "daemon-exec"   // a runtime's daemon runs each operation and tells the host how it ended
	UIDSplit     Assurance = "uid-split"     // a resident worker under another user id than the tools
	MACOnly      Assurance = "mac-only"      // nothing but a key: worthless where tools can read the worker
)

// Level is what a counts on the axis CHN.
func (a Assurance) Level() int {
	switch a {
	case KernelObject, DaemonExec:
		return 2
	case UIDSplit:
		return 1
	}
	return 0
}
