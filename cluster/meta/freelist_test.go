package meta

import (
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// M7: raft.db grew once, by entries that are long gone. A commit after that writes as many pages as one before it, not the list
// of all that is free as well.
func TestStores_FreePagesAreNotWrittenByEachCommit(t *testing.T) {
	const burst, entry = 400, 64 << 10
	s := mustOpen(t, filepath.Join(t.TempDir(), "raft"))
	defer s.close()
	next := uint64(1)
	store := func(size int, logs int) {
		batch := make([]*raft.Log, 0, logs)
		for range logs {
			batch = append(batch, &raft.Log{Index: next, Term: 1, Data: make([]byte, size)})
			next++
		}
		if err := s.log.StoreLogs(batch); err != nil {
			t.Fatal(err)
		}
	}
	allocated := func() int64 {
		stats := s.bolt.Stats()
		return stats.TxStats.GetPageAlloc()
	}
	// perCommit is how many bytes of pages a small commit takes.
	perCommit := func() int64 {
		const commits = 20
		before := allocated()
		for range commits {
			store(100, 1)
		}
		return (allocated() - before) / commits
	}
	store(100, 50)
	quiet := perCommit()
	first := next
	for range burst / 20 {
		store(entry, 20)
	}
	if err := s.log.DeleteRange(first, next-1); err != nil {
		t.Fatal(err)
	}
	store(100, 1) // what a commit freed, the next one may use
	free := s.bolt.Stats().FreePageN
	if free < burst*entry/(2*4096) {
		t.Fatalf("%d free pages after entries of %d bytes were deleted: nothing was tested", free, burst*entry)
	}
	after := perCommit()
	t.Logf("%d bytes of pages a commit, %d with %d free pages", quiet, after, free)
	if after > 2*quiet {
		t.Errorf("a commit takes %d bytes of pages with %d free pages, and took %d before", after, free, quiet)
	}
}
