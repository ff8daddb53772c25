// Package forgery attacks the worker's channel from where tools are: a hostile
// program tries to speak in the worker's name in every way that is known, in
// real boundaries whose workers mirror what they really send. What the host
// takes must be exactly that. The same attacks run against builds without one
// protection, and without any, where they must succeed: else they would prove
// nothing.
//
// Its limit: what it counts is mirrored by the processes under test; that a
// worker which is taken over could lie is the threat model's business.
package forgery
