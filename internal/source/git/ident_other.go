//go:build !linux

package git

// programIdent knows no file well enough here to believe what it said before.
func programIdent(string) string { return "" }
