// Package mux carries descriptors over a stream that has none, such as an
// engine's attach: it is a frame.Transport whose two ends stand in for the pipes,
// terminals and files that a socket would have handed over.
//
// Its limit: it moves bytes and knows no call. What a frame says is not looked at
// but for the operation that it belongs to; what comes along with one is bounded.
package mux
