package vtop_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// grep returns the lines that match in the files of the repository, as git grep prints them.
func grep(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"grep", "--untracked"}, args...)...).Output()
	if err != nil && len(out) == 0 {
		t.Skipf("no git repository here: %v", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// faultGroups says how many faults each group of docs/faults.md has: a row that gets lost takes its tests out of sight.
var faultGroups = map[byte]int{'A': 9, 'B': 8, 'C': 6, 'D': 6, 'E': 14, 'F': 7, 'G': 7, 'H': 6, 'M': 9, 'J': 6, 'S': 3, 'L': 4}

// testFile is a file with tests, as its package and its build constraint go.
type testFile struct{ pkg, constraint string }

// testsByName finds the tests of the repository, named as docs/faults.md names them: "package: TestName".
func testsByName(t *testing.T) map[string]testFile {
	t.Helper()
	constraints := map[string]string{}
	for _, line := range grep(t, "-E", "^//go:build ", "--", "*_test.go") {
		path, text, _ := strings.Cut(line, "://go:build ")
		constraints[path] = text
	}
	found := map[string]testFile{}
	decl := regexp.MustCompile(`^([^:]*?)/?([^:/]+):func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	for _, line := range grep(t, "-E", "^func (Test|Fuzz|Benchmark)[A-Za-z0-9_]+", "--", "*_test.go") {
		if m := decl.FindStringSubmatch(line); m != nil {
			path, _, _ := strings.Cut(line, ":")
			found[m[1]+": "+m[3]] = testFile{pkg: m[1], constraint: constraints[path]}
		}
	}
	return found
}

// target is the target of the Makefile that runs the tests of a file, empty if none does. Benchmarks are no tests.
func (f testFile) target() string {
	switch {
	case f.constraint == "", f.constraint == "linux":
		return "test"
	case f.constraint != "cluster", !strings.HasPrefix(f.pkg, "test/"):
		return ""
	}
	targets := map[string]string{"test/repair": "repair-test", "test/chaos": "chaos", "test/clients": "clients"}
	if target := targets[f.pkg]; target != "" {
		return target
	}
	return "cluster-test"
}

// docs/faults.md is only worth something while the tests that it names are there and some target runs them, each fault has one,
// and the faults that comments name are in it.
func TestDocs_FaultsAreNamedByTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	exists := testsByName(t)
	row := regexp.MustCompile(`^\| ([A-HJLMS]\d+) \|`)
	named := regexp.MustCompile("`(?:([a-z/]+): )?((?:Test|Fuzz|Benchmark)\\w+)`")
	faults := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		tests, pkg := 0, ""
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			if m[1] != "" {
				pkg = m[1]
			}
			file, ok := exists[pkg+": "+m[2]]
			switch target := file.target(); {
			case !ok:
				t.Errorf("docs/faults.md names %s: %s, which does not exist", pkg, m[2])
			case target == "" || !strings.Contains(string(makefile), "\n"+target+":"):
				t.Errorf("docs/faults.md names %s: %s, which no target of the Makefile runs (built for %q)", pkg, m[2], file.constraint)
			case !strings.HasPrefix(m[2], "Benchmark"): // which measures, and fails for nothing
				tests++
			}
		}
		if m := row.FindStringSubmatch(line); m != nil {
			if faults[m[1]] {
				t.Errorf("docs/faults.md has %s twice", m[1])
			}
			if faults[m[1]] = true; tests == 0 {
				t.Errorf("docs/faults.md names no test for %s", m[1])
			}
		}
	}
	for group, count := range faultGroups {
		for n := range count {
			if id := fmt.Sprintf("%c%d", group, n+1); !faults[id] {
				t.Errorf("docs/faults.md has no row for %s", id)
			}
		}
	}
	reference := regexp.MustCompile(`\b([A-HJLMS]\d{1,2})\b`)
	for _, line := range grep(t, "-E", `(//|"|#).*\b[A-HJLMS][0-9]{1,2}\b[,:)]`, "--", "*.go", "*.sh") {
		if strings.Contains(line, ".pb.go:") || strings.Contains(line, "docs_test.go") {
			continue
		}
		for _, m := range reference.FindAllStringSubmatch(line, -1) {
			if !faults[m[1]] {
				t.Errorf("%s names fault %s, which docs/faults.md does not have", strings.TrimSpace(line), m[1])
			}
		}
	}
}
