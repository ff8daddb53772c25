package sys

import "golang.org/x/sys/unix"

// WithoutCore has no core file written of this process and of what it starts from
// here on, whatever the machine does with them: with a limit of 0 the kernel still
// hands a core to a program that collects them, with 1 it does not (core(5),
// "Piping core dumps to a program").
// Where the limit is 0 already and cannot be raised it stays.
func WithoutCore() error {
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &have); err != nil {
		return err
	}
	want := min(1, have.Max)
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: want, Max: want})
}
