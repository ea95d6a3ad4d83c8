package vtop_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

const (
	maxFileLines = 400
	maxFuncLines = 70
)

// Whoever reads a file or a function for the first time reads it as a whole: what is longer is two things. Generated files and tables of
// tests are not read so.
func TestFiles_AreShort(t *testing.T) {
	for _, path := range grep(t, "-lE", "^package ", "--", "*.go") {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(file) {
			continue
		}
		if lines := set.File(file.FileStart).LineCount(); lines > maxFileLines {
			t.Errorf("%s has %d lines, more than %d: it wants to be two files", path, lines, maxFileLines)
		}
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if lines := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1; lines > maxFuncLines {
				t.Errorf("%s: %s has %d lines, more than %d", path, fn.Name.Name, lines, maxFuncLines)
			}
		}
	}
}
