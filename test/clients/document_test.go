//go:build cluster

package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// servers are the other servers, as results are kept under their names.
func servers() []struct{ name, what string } {
	return []struct{ name, what string }{
		{"kfake", "franz-go's kfake, three nodes in one process, version " + moduleVersion("github.com/twmb/franz-go/pkg/kfake")},
		{"apache", "Apache Kafka, three nodes, of the version of the Java client"},
	}
}

// moduleVersion is the version of a module that the tree is built with.
func moduleVersion(path string) string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", path).Output()
	if err != nil {
		return "of a version that is not known"
	}
	return strings.TrimSpace(string(out))
}

// Writes VTOP_CLIENTS_DOC, docs/clients.md, from the results in VTOP_CLIENTS_OUT.
func TestDocument(t *testing.T) {
	dir, path := os.Getenv("VTOP_CLIENTS_OUT"), os.Getenv("VTOP_CLIENTS_DOC")
	if dir == "" || path == "" {
		t.Skip("VTOP_CLIENTS_OUT and VTOP_CLIENTS_DOC say from what and where to; make clients sets them")
	}
	ours, err := load(dir, "vtop")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(docHead)
	writeVersions(&b, ours)
	writeTable(&b, ours)
	writeOnce(&b, ours)
	writeFeatures(&b)
	b.WriteString(docSettings)
	for _, s := range servers() {
		theirs, err := load(dir, s.name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, why := range writeDifferences(&b, s.name, s.what, ours, theirs) {
			t.Error(why)
		}
	}
	if err := writeTools(&b, dir); err != nil {
		t.Fatal(err)
	}
	if err := writeFranz(&b, dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

const docHead = `# Clients

Real clients, each with its own library and runtime, against three vtopd processes. ` + "`make clients`" + ` runs them and
writes this page; nothing on it is written by hand. What fails is run once more, and what passes only then is named.
The programs and the driver are in test/clients.

`

const docSettings = `
## Settings

Libraries run at their defaults, save for these:

- Session timeouts of classic groups are 6 s and heartbeats 1 s, so that a death is noticed while the test waits.
- sarama's producer tries 60 times, 250 ms apart: its default of three tries, 100 ms apart, is shorter than a change of leader.
- kafka-console-producer's ` + "`--message-send-max-retries`" + ` is the Java producer's own default; the tool's is three.
- kafkajs has no snappy, lz4 and zstd of its own: it runs with kafkajs-snappy, lz4js and zstd-codec. Without a group it
  can't consume; where a feature needs none it reads under a group of its own, and keeps its positions itself.
- kafkajs tries 30 times, at most 2 s apart: its default of five tries ends after ten seconds, and a node that was killed may
  take as long on a busy machine.
- kafka-python polls for 2 s at a time: its assignment is lost, for good, if it comes while a poll's time ends.
- sarama commits what it has read at once, and every 100 ms, not every second, what did not get through.
- kafka-go commits every 100 ms: a synchronous commit of its Reader is tried again on the connection to the coordinator
  that died, and its error handed to the application.
- kafka-console-consumer's ERROR of a LeaveGroup that came to a coordinator which had just changed is taken for none: the
  Java consumer doesn't ask for the new one, and its session ends by itself.
- Command-line consumers commit every 100 ms; their default of 5 s would make a death repeat more records than the test writes.
`

func load(dir, server string) ([]result, error) {
	b, err := os.ReadFile(filepath.Join(dir, server+".json"))
	if err != nil {
		return nil, err
	}
	var out []result
	return out, json.Unmarshal(b, &out)
}

func writeVersions(b *strings.Builder, cells []result) {
	versions := map[string]string{}
	for _, c := range cells {
		if c.Version != "" {
			versions[c.Client] = c.Version
		}
	}
	b.WriteString("| client | version |\n| --- | --- |\n")
	for _, c := range allClients() {
		v := versions[c.name]
		if v == "" {
			v = "did not run"
		}
		fmt.Fprintf(b, "| %s | %s |\n", c.name, v)
	}
}

func find(cells []result, client, feature string) (result, bool) {
	for _, c := range cells {
		if c.Client == client && c.Feature == feature {
			return c, true
		}
	}
	return result{}, false
}

// writeTable has features as rows; what isn't a plain yes has a note.
func writeTable(b *strings.Builder, cells []result) {
	b.WriteString("\n## Results\n\n| feature |")
	for _, c := range allClients() {
		fmt.Fprintf(b, " %s |", c.name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(allClients())) + "\n")
	var notes []string
	for _, f := range allFeatures() {
		fmt.Fprintf(b, "| %s |", f.name)
		for _, c := range allClients() {
			r, _ := find(cells, c.name, f.name)
			fmt.Fprintf(b, " %s |", mark(r, &notes))
		}
		b.WriteString("\n")
	}
	if len(notes) > 0 {
		b.WriteString("\n")
	}
	for i, n := range notes {
		fmt.Fprintf(b, "%d. %s\n", i+1, n)
	}
}

// writeOnce names the cells that passed when they were run again.
func writeOnce(b *strings.Builder, cells []result) {
	for _, c := range cells {
		if c.Outcome == ok && c.Once != "" {
			fmt.Fprintf(b, "\n%s at %s passed the second time; the first: %s\n", c.Client, c.Feature, oneLine(c.Once))
		}
	}
}

func mark(r result, notes *[]string) string {
	word := map[outcome]string{ok: "yes", failed: "**no**", lacks: "–", notRun: "did not run"}[r.Outcome]
	if word == "" {
		word = "did not run"
	}
	if r.Detail == "" {
		return word
	}
	text := oneLine(r.Detail)
	if r.Outcome == lacks {
		text = r.Client + ": " + text
	}
	for i, n := range *notes {
		if n == text {
			return fmt.Sprintf("%s (%d)", word, i+1)
		}
	}
	*notes = append(*notes, text)
	return fmt.Sprintf("%s (%d)", word, len(*notes))
}

// oneLine leaves out what differs from run to run: addresses and the names of topics.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	s = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(s, "ADDRESS")
	s = regexp.MustCompile(`(vtop|kfake|apache)-\d{3}`).ReplaceAllString(s, "TOPIC")
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return strings.ReplaceAll(s, "|", `\|`)
}

func writeFeatures(b *strings.Builder) {
	b.WriteString("\n## Features\n\n")
	for _, f := range allFeatures() {
		fmt.Fprintf(b, "- **%s**: %s.\n", f.name, f.what)
	}
}

// writeDifferences lists the cells that came out otherwise than here, and gives those that nobody has explained.
func writeDifferences(b *strings.Builder, server, what string, ours, theirs []result) []error {
	fmt.Fprintf(b, "\n## Against %s\n\n", what)
	var rows []string
	var open []error
	same := 0
	for _, r := range ours {
		t, found := find(theirs, r.Client, r.Feature)
		if !found || t.Outcome == notRun || r.Outcome == notRun {
			continue
		}
		if t.Outcome == r.Outcome {
			same++
			continue
		}
		why := explained(server, r.Client, r.Feature, t.Detail)
		if why == "" {
			why = "not explained: " + oneLine(r.Detail+" "+t.Detail)
			open = append(open, fmt.Errorf("%s at %s: %s here, %s there: %s", r.Client, r.Feature, r.Outcome, t.Outcome, why))
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s |\n", r.Client, r.Feature, r.Outcome, t.Outcome, why))
	}
	fmt.Fprintf(b, "%d cells come out the same, %d differ.\n", same, len(rows))
	if len(rows) > 0 {
		b.WriteString("\n| client | feature | vtop | there | why |\n| --- | --- | --- | --- | --- |\n" + strings.Join(rows, ""))
	}
	return open
}

// writeTools writes the table of Kafka's command-line tools.
func writeTools(b *strings.Builder, dir string) error {
	cells, err := load(dir, "vtop-tools")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	b.WriteString("\n## Kafka's command-line tools\n\nThey are of the version of the Java client. What each is asked, and what it must have done, is in\ntest/clients/toolchecks_test.go.\n\n| tool | result |\n| --- | --- |\n")
	for _, c := range cells {
		word := "yes"
		if c.Outcome != ok {
			word = "**no**: " + oneLine(c.Detail)
		} else if c.Once != "" {
			word += " (the second time; the first: " + oneLine(c.Once) + ")"
		}
		fmt.Fprintf(b, "| %s | %s |\n", c.Feature, word)
	}
	return err
}

// writeFranz counts franz-go's own tests, and lists those that did not pass.
func writeFranz(b *strings.Builder, dir string) error {
	cells, err := load(dir, "franz-go")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	b.WriteString("\n## franz-go's own tests\n\n")
	passed := 0
	var rest []string
	for _, c := range cells {
		switch c.Outcome {
		case ok:
			passed++
		case failed:
			rest = append(rest, "- "+c.Feature+" **fails**.\n")
		}
	}
	fmt.Fprintf(b, "The tests of its kgo package, unmodified, with vtop for their broker: %d tests and sub-tests pass; many need no\nbroker, TestGroupETL with all its balancers and both protocols does.\n\n%s", passed, strings.Join(rest, ""))
	for _, s := range franzSkips {
		fmt.Fprintf(b, "- Left out: %s %s.\n", strings.ReplaceAll(s.tests, "|", ", "), s.why)
	}
	return err
}

// differences explains cells, server/client/feature as a regular expression, that come out otherwise than with vtop, if they fail
// in the way that failure, another one, knows.
var differences = []struct{ cells, failure, why string }{
	{`kfake/kcat/(gzip|snappy|lz4)`, `is stored with codec 0`, "librdkafka up to 2.0 takes no codec but zstd for available where Produce does not begin at version 0, and stores records uncompressed without a word; vtop announces versions from 0 on"},
	{`kfake/.*/(lease transfer|holder killed|(KIP-848 )?coordinator killed)`, `came as offset 0,|was reset to offset 0|committed are|committed offset of range`, "asked where an epoch ends while nothing is written under the next one, kfake answers that it doesn't know the epoch; the consumer takes that for a log that was cut, and goes back to the start. vtop answers from its epoch table"},
	{`kfake/(Java client|Kafka console tools)/topic`, `"configs" is null`, "kfake answers CreateTopics without a list of the topic's settings where none was asked for; the Java AdminClient wants one, an empty one at least"},
}

func explained(server, client, feature, failure string) string {
	for _, d := range differences {
		if regexp.MustCompile("^"+d.cells+"$").MatchString(server+"/"+client+"/"+feature) && regexp.MustCompile(d.failure).MatchString(failure) {
			return d.why
		}
	}
	return ""
}
