package integration

import (
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

var pinned = regexp.MustCompile(`^[a-z0-9./-]+:v?[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.-]*$`)

// TestCompose loads docker-compose.yml as docker compose does: images are pinned to a release, each service says when it is healthy, and
// nothing listens beyond this machine.
func TestCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{"../docker-compose.yml"}, cli.WithoutEnvironmentResolution)
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(project.Services) == 0 {
		t.Fatal("no services")
	}
	for name, s := range project.Services {
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q is not pinned to a release", name, s.Image)
		}
		if s.HealthCheck == nil || s.HealthCheck.Disable || len(s.HealthCheck.Test) == 0 {
			t.Errorf("%s has no health check", name)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p.HostIP, "127.") {
				t.Errorf("%s publishes port %s on %q, not on loopback only", name, p.Published, p.HostIP)
			}
		}
	}
}
