// Package probe measures a boundary by trying what must be impossible in it
// and by the host's own look at its processes, and turns both into levels.
//
// Its limit: it reports no level it did not attempt. The inside half (Inside)
// is linked into the worker and uses raw system calls only; the host half
// (Judge, ObserveHost, Plant, Survey) never asks the boundary about itself.
//
// What a level rests on: PRC, KRN and NET need the inside attempts and the
// host's reading of /proc, and count as the lower of the two. FS and CPL rest on
// the inside attempts and are lowered by the host's mount table and by sentinels
// that were touched. SRC, RES, CHN, SVC, CRD, APR, VER, EVD and CLN are vouched for
// by the caller on the host; the inside can only lower CHN and CRD. A lying
// report can therefore lower any level, and can raise only FS and CPL, only as
// far as mount table and sentinel logs do not contradict it. It is taken before the first
// untrusted instruction ran, by our own program.
package probe
