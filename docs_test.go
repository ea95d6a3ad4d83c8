package vtop_test

import (
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

// docs/faults.md is only worth something while the tests that it names are there, and the faults that comments name are in it.
func TestDocs_FaultsAreNamedByTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	decl := regexp.MustCompile(`^([^:]*/)?[^:/]+:func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	for _, line := range grep(t, "-E", "^func (Test|Fuzz|Benchmark)[A-Za-z0-9_]+", "--", "*_test.go") {
		if m := decl.FindStringSubmatch(line); m != nil {
			exists[strings.TrimSuffix(m[1], "/")+": "+m[2]] = true
		}
	}
	row := regexp.MustCompile(`^\| ([A-HJLMS]\d+) \|`)
	named := regexp.MustCompile("`(?:([a-z/]+): )?((?:Test|Fuzz|Benchmark)\\w+)`")
	faults, count := map[string]bool{}, 0
	for line := range strings.Lines(string(page)) {
		if m := row.FindStringSubmatch(line); m != nil {
			faults[m[1]] = true
		}
		pkg := ""
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			if m[1] != "" {
				pkg = m[1]
			}
			if count++; !exists[pkg+": "+m[2]] {
				t.Errorf("docs/faults.md names %s: %s, which does not exist", pkg, m[2])
			}
		}
	}
	if len(faults) < 60 || count < 100 {
		t.Fatalf("read %d faults and %d tests in docs/faults.md: its form has changed, or this test is wrong", len(faults), count)
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
