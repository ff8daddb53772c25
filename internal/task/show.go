package task

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// QuotePath shows a path: as it is when it is plain text, else in Go's quotes, so
// that no name can act on a terminal or look like another one.
func QuotePath(path string) string {
	plain := utf8.ValidString(path) && !strings.ContainsFunc(path, func(r rune) bool {
		return r != ' ' && !unicode.IsPrint(r)
	})
	if plain && path != "" && path[0] != '"' {
		return path
	}
	return strconv.QuoteToGraphic(path)
}

// ShellWord makes s one word of a shell: as it is where no shell reads anything
// else, else in single quotes.
func ShellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
