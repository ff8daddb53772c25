// Command attacker is hostile task content: the attempts of internal/verify/attack
// in a program of their own, with nothing else of the product in it.
//
// Its limit: it judges nothing.
package main

import (
	"os"

	"github.com/caisson-dev/caisson/internal/verify/attack"
)

func main() { os.Exit(attack.Main(nil, os.Args[1:])) }
