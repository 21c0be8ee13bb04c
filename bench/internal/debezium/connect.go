package debezium

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// name is that of the connector, of its replication slot and of its publication.
const name = "outbox_bench"

// Connect is a running Kafka Connect with one connector.
type Connect struct {
	cmd  *exec.Cmd
	dir  string
	rest string // address of its REST interface
}

// Start starts Connect and the connector, and returns when that runs. The end of ctx kills it.
func Start(ctx context.Context, c Connector) (_ *Connect, err error) {
	libs, err := libraries(ctx)
	if err != nil {
		return nil, err
	}
	connect := &Connect{}
	if connect.dir, err = os.MkdirTemp("", "outbox-bench-connect-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, connect.Stop())
		}
	}()
	if connect.rest, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	if err := connect.launch(ctx, libs, c); err != nil {
		return nil, err
	}
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	if err := connect.until(ctx, func() (bool, error) {
		return connect.call(ctx, http.MethodPut, "/config", config) == nil, nil
	}); err != nil {
		return nil, fmt.Errorf("debezium: connect did not take the connector: %w\n%s", err, connect.log())
	}
	return connect, connect.await(ctx, "RUNNING")
}

func (c *Connect) launch(ctx context.Context, libs string, of Connector) error {
	properties := strings.Join([]string{
		"bootstrap.servers=" + of.Kafka, "listeners=http://" + c.rest,
		"key.converter=org.apache.kafka.connect.storage.StringConverter",
		"value.converter=org.apache.kafka.connect.storage.StringConverter",
		"offset.storage.file.filename=" + filepath.Join(c.dir, "offsets"), "plugin.discovery=only_scan",
		"connector.client.config.override.policy=All", "",
	}, "\n")
	file := filepath.Join(c.dir, "worker.properties")
	if err := os.WriteFile(file, []byte(properties), 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(c.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()                                  //nolint:errcheck // the child has its own
	c.cmd = exec.CommandContext(ctx, "java", "-Xmx1g", //nolint:gosec // our own arguments
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(libs, "*"),
		"org.apache.kafka.connect.cli.ConnectStandalone", file)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	return c.cmd.Start()
}

// Pause ends the connector's task, so that a backlog can be made. The machine stays warm.
func (c *Connect) Pause(ctx context.Context) error {
	if err := c.call(ctx, http.MethodPut, "/stop", nil); err != nil {
		return err
	}
	return c.await(ctx, "STOPPED")
}

// Resume starts the task again; it returns at once.
func (c *Connect) Resume(ctx context.Context) error {
	return c.call(ctx, http.MethodPut, "/resume", nil)
}

// Stop ends Connect.
func (c *Connect) Stop() error {
	if c.cmd != nil && c.cmd.Process != nil {
		_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = c.cmd.Wait()                          // says only that it was ended
	}
	return os.RemoveAll(c.dir)
}

// PID is its process.
func (c *Connect) PID() int { return c.cmd.Process.Pid }

// await waits until the connector and its tasks are in a state.
func (c *Connect) await(ctx context.Context, want string) error {
	err := c.until(ctx, func() (bool, error) {
		var status struct {
			Connector struct{ State string }
			Tasks     []struct{ State, Trace string }
		}
		if err := c.get(ctx, "/status", &status); err != nil {
			return false, nil //nolint:nilerr // it is just starting
		}
		for _, task := range status.Tasks {
			if task.State == "FAILED" {
				return false, errors.New(task.Trace)
			}
			if task.State != want {
				return false, nil
			}
		}
		return status.Connector.State == want && (want != "RUNNING" || len(status.Tasks) > 0), nil
	})
	if err != nil {
		return fmt.Errorf("debezium: the connector is not %s: %w\n%s", want, err, c.log())
	}
	return nil
}

// until asks again and again, for two minutes at most.
func (c *Connect) until(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Connect) call(ctx context.Context, method, path string, body []byte) error {
	_, err := c.request(ctx, method, path, body)
	return err
}

func (c *Connect) get(ctx context.Context, path string, into any) error {
	body, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func (c *Connect) request(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	url := "http://" + c.rest + "/connectors/" + name + path
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("debezium: %s %s: %s: %s", method, path, response.Status, answer)
	}
	return answer, err
}

// log is the end of what Connect has said.
func (c *Connect) log() []byte {
	text, _ := os.ReadFile(filepath.Join(c.dir, "log"))
	return text[max(0, len(text)-3000):]
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close() //nolint:errcheck // nobody has connected
	return l.Addr().String(), nil
}
