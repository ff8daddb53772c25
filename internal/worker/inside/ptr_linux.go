package inside

import "unsafe"

func actPtr(a *sigaction) unsafe.Pointer { return unsafe.Pointer(a) }
