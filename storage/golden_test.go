package storage

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vtop-log/vtop"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The bytes on disk are pinned: a change needs a new version number and code that reads the old one.
func TestFormat_Golden(t *testing.T) {
	table := newProducerTable(&Options{MaxProducers: 10})
	table.add(stamped(producerBatch(1, 2, 3, 2), 5, 1))
	table.add(stamped(producerBatch(9, 0, 0, 1), 7, 1))
	x := newIndex(10)
	x.add(5, 0, 100)
	x.add(9, 61, 50)
	key := replicaKey{testRange(3), 7}
	frames := appendFrames(nil, 0, []entry{{entryPromise, key, 3}, {entryMark, key, 12}})
	journal := append(encodeJournalHeader(vtop.UUID{1}, uint64(journalHeader+len(frames))), frames...)
	journal = appendFrames(journal, uint64(len(journal)), []entry{{entryLost, key, 0}, {entryForget, key, 0}})
	for name, got := range map[string][]byte{
		"identity":  Identity{vtop.UUID{1}, vtop.UUID{2}, 3}.encode(),
		"replica":   replicaMeta{vtop.UUID{2}, testRange(3), 7, 100}.encode(),
		"producers": encodeSnapshot(testRange(3), 8, table.encode()),
		"index":     x.encode(5, 200),
		"hole":      encodeSmall(magicHole, []byte("its file is missing")),
		"journal":   journal,
		"stage":     stageMeta{vtop.UUID{2}, testRange(3)}.encode(),
	} {
		file := filepath.Join("testdata", name+".golden")
		if *update {
			ok(t, os.MkdirAll("testdata", 0o755))
			ok(t, os.WriteFile(file, []byte(lines(hex.EncodeToString(got))), 0o644))
		}
		want, err := os.ReadFile(file)
		ok(t, err)
		if string(want) != lines(hex.EncodeToString(got)) {
			t.Errorf("%s is\n%swant\n%s", name, lines(hex.EncodeToString(got)), want)
		}
	}
}

// lines breaks hexadecimal digits into lines of 32 bytes.
func lines(digits string) string {
	var b strings.Builder
	for len(digits) > 64 {
		b.WriteString(digits[:64] + "\n")
		digits = digits[64:]
	}
	b.WriteString(digits + "\n")
	return b.String()
}
