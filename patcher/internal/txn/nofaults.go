//go:build !faults

package txn

// serial makes the waits for the disk one after the other.
const serial = false

func inject(_ call, do func() error) error { return do() }
