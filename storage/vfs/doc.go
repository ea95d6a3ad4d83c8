// Package vfs implements the one seam between vtop and its file systems: a few verbs, and four things behind them.
//
//   - OS is the real disk.
//   - CrashFS lives in memory, knows what was synced and what was not, and can be cloned into any state that a
//     power cut may leave behind.
//   - FaultFS wraps another FS and lets a Hook fail, delay or cut short each call.
//   - The contract suite in vfstest holds for all of them.
//
// WriteFileAtomic, MkdirAllSync and ReadFile are built on the verbs, so that create, write, sync, rename and
// sync-dir are spelled in that order in one place.
//
// The package knows nothing of logs, ranges or batches. It never retries: a write or sync that failed is
// reported once, and what must follow is the caller's to decide (see File.Sync).
package vfs
