//go:build faults

package swap

const faulty = true
