// Package guest is what a worker needs to know that finds a root and namespaces
// made by another program, an engine or a runtime, and what it does there: plan
// and report, which the host exchanges with it before the first frame, and the
// half that runs inside.
//
// Its limit: it makes no mount and no namespace and knows no engine. Who starts
// the worker, and what lies where, is the backend's business.
package guest
