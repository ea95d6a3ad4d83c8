// Kcat is the program of kcat (Debian's, on librdkafka). With VTOP_LIBRDKAFKA naming a directory that holds another
// librdkafka.so.1, kcat runs on that one.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/vtop-log/vtop/test/clients/programs/go/lines"
	"github.com/vtop-log/vtop/test/clients/programs/go/program"
)

type kcat struct{ seeds string }

func main() {
	if dir := os.Getenv("VTOP_LIBRDKAFKA"); dir != "" {
		if err := os.Setenv("LD_LIBRARY_PATH", dir); err != nil {
			panic(err)
		}
	}
	program.Main(program.Hello{Client: "kcat", Version: version()}, func(seeds []string) program.Client {
		k := kcat{strings.Join(seeds, ",")}
		return lines.Tool{
			CreateLine: k.create, ProduceLine: k.produce, ConsumeLine: k.consume, GroupLine: k.group,
			Parse: parse, Failed: failed,
		}
	})
}

// version is that of kcat and of the library that it runs on.
func version() string {
	out, _ := exec.Command("kcat", "-V").CombinedOutput()
	m := regexp.MustCompile(`Version (\S+) .*librdkafka (\S+) `).FindSubmatch(out)
	if m == nil {
		return "unknown"
	}
	return fmt.Sprintf("%s on librdkafka %s", m[1], m[2])
}

func (k kcat) line(args ...string) []string { return append([]string{"kcat", "-b", k.seeds}, args...) }

// create produces nothing: kcat has no admin requests, and a topic is made when a producer first asks for it.
func (k kcat) create(cmd program.Command) []string {
	return []string{"sh", "-c", `echo first | exec "$@"`, "kcat", "kcat", "-b", k.seeds, "-P", "-t", cmd.Topic}
}

func (k kcat) produce(cmd program.Command) []string {
	line := k.line("-P", "-t", cmd.Topic, "-X", "acks=all", "-X", "linger.ms=5")
	if cmd.Codec != "" {
		line = append(line, "-z", cmd.Codec)
	}
	if cmd.Idempotent {
		line = append(line, "-X", "enable.idempotence=true")
	}
	return line
}

const format = "%p %o %s\n"

func (k kcat) consume(cmd program.Command) []string {
	return k.line("-C", "-t", cmd.Topic, "-o", "beginning", "-u", "-f", format)
}

func (k kcat) group(cmd program.Command) ([]string, error) {
	line := k.line("-u", "-f", format, "-X", "auto.offset.reset=earliest", "-X", "auto.commit.interval.ms=100")
	if cmd.Protocol == "consumer" {
		if strings.Contains(version(), "librdkafka 2.0.") {
			return nil, program.Unsupported("librdkafka has it since 2.4")
		}
		line = append(line, "-X", "group.protocol=consumer")
	} else {
		line = append(line, "-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=1000")
	}
	if cmd.Instance != "" {
		line = append(line, "-X", "group.instance.id="+cmd.Instance)
	}
	return append(line, "-G", cmd.Group, cmd.Topic), nil
}

func parse(line string) (program.Record, bool) {
	f := strings.SplitN(line, " ", 3)
	if len(f) != 3 {
		return program.Record{}, false
	}
	r, err1 := strconv.ParseInt(f[0], 10, 32)
	offset, err2 := strconv.ParseInt(f[1], 10, 64)
	return program.Read(int32(r), offset, []byte(f[2])), err1 == nil && err2 == nil
}

// failed knows kcat's lines: those that begin with %ERROR or % ERROR tell of broken connections, which librdkafka mends
// by itself, as its documentation says; what kcat gives up for is in its exit code.
func failed(line string) bool { return strings.Contains(line, "Delivery failed") }
