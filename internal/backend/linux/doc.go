// Package linux makes boundaries out of the kernel's own parts: namespaces,
// a root built of mounts, Landlock, seccomp, cgroups. It starts the worker,
// hands it a plan and answers for what it made until it is proven gone.
//
// Its limit: it shares the host's kernel, decides no policy, speaks no frames
// of the channel and never gives less than it promised: it fails instead.
package linux
