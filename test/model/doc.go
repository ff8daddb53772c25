// Package model is a scripted model on a loopback address: it speaks the four
// dialects that agent clients speak and answers each request with the next step
// of a script, so that a real client can be driven without an account, a network
// or chance.
//
// Its limit: it understands no request. It counts the tool results in one, which
// tells the step, and writes down what it was asked.
package model
