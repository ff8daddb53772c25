// Package policy decides which boundary a task needs, compares it with what a
// backend promises and with what was proved, and says what is missing.
//
// Its limit: pure functions over plain values. It reads no file and no
// environment, knows no technology and starts nothing; its zero value needs the
// unconditional base row and accepts no gap.
package policy
