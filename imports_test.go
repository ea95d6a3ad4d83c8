package vtop_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/vtop-log/vtop"

// layers is the import rule: each package and all that it may import from this module. A prefix ending in
// "/..." covers the packages below it. What a package isn't granted here, it may not import: imports point
// down only, siblings never meet, and nobody imports test/.
var layers = []struct {
	pkg    string
	may    []string
	reason string
}{
	{"", nil, "the vocabulary stands on the standard library alone"},
	{"batch", []string{""}, "record batch bytes are below every store and protocol"},
	{"topicconfig", []string{""}, "a topic's configuration is values and their checks"},
	{"fsm/...", []string{"", "fsm/..."}, "the state machine is pure: no disk, network or sibling"},
	{"storage/...", []string{"", "batch", "storage/..."}, "one node's disk knows nothing of nodes or metadata"},
	{"transport/...", []string{"", "transport/..."}, "bytes between nodes, whatever they mean"},
	{"cluster/protocol/...", []string{"", "cluster/protocol/..."}, "the protocol core is pure"},
	{"cluster/...", []string{"", "batch", "topicconfig", "fsm/...", "storage/...", "transport/...", "cluster/..."}, "one node put together"},
	{"kafka/...", []string{"", "batch", "topicconfig", "fsm", "cluster/...", "kafka/..."}, "the client face stands on the node"},
	{"drill/...", []string{"", "transport/adminapi", "drill/..."}, "a drill sees a cluster as its users do: the Kafka protocol and the admin port; the tool and the tests stand on it"},
	{"cmd/vtopctl/...", []string{"", "batch", "drill/...", "storage/...", "transport/...", "cmd/vtopctl/..."}, "the operator's tool speaks to nodes; storage is for offline work only"},
	{"cmd/vtopd/...", []string{"", "batch", "topicconfig", "fsm", "storage/...", "transport/...", "cluster/...", "kafka/...", "cmd/vtopd/..."}, "the daemon wires all"},
	{"test/...", []string{"", "batch", "topicconfig", "fsm/...", "storage/...", "transport/...", "cluster/...", "kafka/...", "drill/...", "test/..."}, "tests may use everything, and nobody uses them"},
}

type listed struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func covers(pattern, pkg string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pattern == pkg
}

func relative(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

func TestImports_PointDownOnly(t *testing.T) {
	out, err := exec.Command("go", "list", "-tags", "cluster", "-json=ImportPath,Imports,TestImports,XTestImports", "./...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	seen := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; seen++ {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		checkImports(t, p)
	}
	if seen < 5 {
		t.Fatalf("go list named %d packages: the test looked at nothing", seen)
	}
}

func checkImports(t *testing.T, p listed) {
	t.Helper()
	pkg, _ := relative(p.ImportPath)
	for _, layer := range layers {
		if !covers(layer.pkg, pkg) {
			continue
		}
		for _, imp := range p.Imports {
			if rel, ours := relative(imp); ours && !granted(layer.may, rel) {
				t.Errorf("%s imports %s: %s", p.ImportPath, imp, layer.reason)
			}
			if rel, ours := relative(imp); ours && strings.HasSuffix(rel, "test") && !covers("test/...", pkg) {
				t.Errorf("%s imports %s, which is there for tests", p.ImportPath, imp)
			}
		}
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			if rel, ours := relative(imp); ours && covers("test/...", rel) && !covers("test/...", pkg) {
				t.Errorf("a test of %s imports %s: nobody imports test/", p.ImportPath, imp)
			}
		}
		return
	}
	t.Errorf("%s stands in no layer: add it to the table with its reason", p.ImportPath)
}

func granted(may []string, pkg string) bool {
	for _, pattern := range may {
		if covers(pattern, pkg) {
			return true
		}
	}
	return false
}

func TestImports_VocabularyUsesStandardLibraryOnly(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if dep != module {
			t.Errorf("package vtop depends on %s", dep)
		}
	}
}
