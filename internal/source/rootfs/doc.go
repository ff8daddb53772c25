// Package rootfs makes a folder of what holds a root file system: a tar file, an
// image that an engine saved, or an OCI layout as a folder or a tar file. Nothing is
// fetched and no engine is asked.
//
// Its limit: it runs nothing of what it unpacks, sets no owner and no special mode,
// and makes no device; what an image says of its commands, users and variables is
// not read.
package rootfs
