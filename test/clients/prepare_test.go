//go:build cluster

package clients

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// What the programs need is fetched once into a cache outside the tree: VTOP_CLIENTS_CACHE, or vtop-clients under
// the user's cache directory. A directory there is named for the digest of the file that pins its contents, so that
// another pin is another directory, and it is whole: it is made beside and renamed.

func cacheDir() (string, error) {
	if dir := os.Getenv("VTOP_CLIENTS_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory, set VTOP_CLIENTS_CACHE: %w", err)
	}
	return filepath.Join(base, "vtop-clients"), nil
}

// cached gives the directory that fill makes from the files of pins, and makes it if it isn't there.
func cached(name string, pins []string, fill func(dir string) error) (string, error) {
	base, err := cacheDir()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, pin := range pins {
		b, err := os.ReadFile(pin)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(pin), len(b), b)
	}
	dir := filepath.Join(base, name+"-"+hex.EncodeToString(h.Sum(nil))[:12])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(base, 0o750); err != nil {
		return "", err
	}
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o750)); err != nil {
		return "", err
	}
	if err := fill(part); err != nil {
		return "", err
	}
	return dir, os.Rename(part, dir)
}

// fetch is tool for what comes over the network: tried three times.
func fetch(dir, name string, args ...string) error {
	var err error
	for range 3 {
		if err = tool(dir, name, args...); err == nil {
			return nil
		}
	}
	return err
}

// tool runs a command for at most ten minutes, in dir.
func tool(dir, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%s is not installed", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		tail := strings.TrimSpace(string(out))
		return fmt.Errorf("%s %s: %w: …%s", name, args[0], err, tail[max(0, len(tail)-300):])
	}
	return nil
}

func programs(elem ...string) string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return filepath.Join(append([]string{dir, "programs"}, elem...)...)
}

// goPrograms builds the programs in Go, every time: the build cache knows what is new.
var goPrograms = sync.OnceValues(func() (string, error) {
	base, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "go")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	return dir, fetch(programs("go"), "go", "build", "-o", dir+"/", "./...")
})

var pythonPackages = sync.OnceValues(func() (string, error) {
	pin := programs("python", "requirements.txt")
	return cached("python", []string{pin}, func(dir string) error {
		return fetch(dir, "python3", "-m", "pip", "install", "-q", "--target", dir, "-r", pin)
	})
})

var nodeModules = sync.OnceValues(func() (string, error) {
	pins := []string{programs("node", "package.json"), programs("node", "package-lock.json")}
	dir, err := cached("node", pins, func(dir string) error {
		for _, pin := range pins {
			b, err := os.ReadFile(pin)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(pin)), b, 0o600); err != nil {
				return err
			}
		}
		return fetch(dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	})
	return filepath.Join(dir, "node_modules"), err
})

// kafkaJars are the jars of the Java client, the console tools and a broker.
var kafkaJars = sync.OnceValues(func() (string, error) {
	pin := programs("java", "pom.xml")
	if _, err := exec.LookPath("java"); err != nil {
		return "", errors.New("java is not installed")
	}
	return cached("jars", []string{pin}, func(dir string) error {
		return fetch(programs("java"), "mvn", "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory="+dir)
	})
})

var javaProgram = sync.OnceValues(func() (string, error) {
	jars, err := kafkaJars()
	if err != nil {
		return "", err
	}
	source := programs("java", "Program.java")
	return cached("java", []string{source, programs("java", "pom.xml")}, func(dir string) error {
		return tool(dir, "javac", "-cp", filepath.Join(jars, "*"), "-d", dir, source)
	})
})

// newestLibrdkafka is a directory with the librdkafka.so.1 that the confluent-kafka wheel brings.
var newestLibrdkafka = sync.OnceValues(func() (string, error) {
	packages, err := pythonPackages()
	if err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(packages, "confluent_kafka.libs", "librdkafka-*.so.1"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%d librdkafka in the wheel of confluent-kafka: %w", len(found), err)
	}
	return cached("librdkafka", []string{programs("python", "requirements.txt")}, func(dir string) error {
		return os.Symlink(found[0], filepath.Join(dir, "librdkafka.so.1"))
	})
})
