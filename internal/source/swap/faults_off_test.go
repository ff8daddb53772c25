//go:build !faults

package swap

const faulty = false
