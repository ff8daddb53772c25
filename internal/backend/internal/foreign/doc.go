// Package foreign is what a boundary has of this program's own where another
// program, an engine or a runtime, makes its root: a folder with what is generated,
// the list of what is mounted, the worker's plan, and the look at control groups.
//
// Its limit: it starts nothing and knows no engine and no runtime.
package foreign
