package vfs

// StartWriteBack has the operating system begin to write a part of a file to the disk, so that much written data leaves evenly
// and a later sync, of this file or of another one on the same disk, finds little to do. It waits for nothing and promises nothing:
// durable is what Sync says. Where the system has no such call, it does nothing.
func StartWriteBack(f File, off, n int64) {
	if w, ok := f.(interface{ startWriteBack(off, n int64) }); ok {
		w.startWriteBack(off, n)
	}
}
