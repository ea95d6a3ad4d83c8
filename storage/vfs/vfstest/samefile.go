package vfstest

import (
	"io/fs"
	"testing"
)

// sameFile holds SameFile to what names and open files are.
func (s suite) sameFile(t *testing.T) {
	s.put(t, "a", "one")
	f, err := s.fs.Open(s.path("a"))
	must(t, err)
	defer f.Close()
	want := func(name string, same bool) {
		t.Helper()
		got, err := s.fs.SameFile(s.path(name), f)
		must(t, err)
		if got != same {
			t.Errorf("%s is the open file: %v", name, got)
		}
	}
	want("a", true)
	must(t, s.fs.Rename(s.path("a"), s.path("b")))
	want("b", true)
	_, err = s.fs.SameFile(s.path("a"), f)
	wantErr(t, err, fs.ErrNotExist)
	s.put(t, "a", "one")
	want("a", false)
	must(t, s.fs.Remove(s.path("b")))
	_, err = s.fs.SameFile(s.path("b"), f)
	wantErr(t, err, fs.ErrNotExist)
}
