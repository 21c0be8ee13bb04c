package debezium

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// The versions. This connector does not start in Connect 4.4.0.
const (
	connectVersion  = "4.3.0"
	debeziumVersion = "3.6.1.Final"
)

const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>outbox.bench</groupId>
  <artifactId>debezium</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId><version>%[1]s</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>%[1]s</version></dependency>
    <dependency><groupId>io.debezium</groupId><artifactId>debezium-connector-postgres</artifactId><version>%[2]s</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

// libraries returns the folder with everything that Connect needs, and fills it first if need be.
func libraries(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	root := filepath.Join(cache, "outbox-bench")
	dir := filepath.Join(root, "debezium-"+debeziumVersion)
	complete := filepath.Join(dir, ".complete")
	if _, err := os.Stat(complete); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	file := filepath.Join(root, "pom.xml")
	if err := os.WriteFile(file, fmt.Appendf(nil, pom, connectVersion, debeziumVersion), 0o600); err != nil {
		return "", err
	}
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", file, //nolint:gosec // our own arguments
		"dependency:copy-dependencies", "-DoutputDirectory="+dir)
	if out, err := mvn.CombinedOutput(); err != nil {
		return "", fmt.Errorf("debezium: download: %w\n%s", err, out)
	}
	return dir, os.WriteFile(complete, nil, 0o600)
}
