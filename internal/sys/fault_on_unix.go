//go:build faults && unix

package sys

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

func killSelf() {
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {} // the signal may arrive on another thread first
}

// stopSelf returns only after the process was continued: the stop may reach
// another thread first, and this one must not go on until then.
func stopSelf() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	<-continued
}
