package integration

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestServiceEndsWithItsFile: a wrong file ends the service for good. RestartPreventExitStatus looks only at the main process: in
// an ExecStartPre that finds the same, the file is checked again for ever.
func TestServiceEndsWithItsFile(t *testing.T) {
	t.Parallel()
	unit := read(t, "../deploy/systemd/longshore.service")
	if !strings.Contains(unit, "\nRestartPreventExitStatus=2\n") || strings.Contains(unit, "\nExecStartPre=") {
		t.Error("the unit starts again with a file that is wrong")
	}
}

// TestServiceReadsItsFile: the user of the systemd unit is made for it, and is in no group: a file that only root may read ends
// the service at each start.
func TestServiceReadsItsFile(t *testing.T) {
	t.Parallel()
	unit := read(t, "../deploy/systemd/longshore.service")
	mode := regexp.MustCompile(`install .*-m (0[0-7]{3}) c.yaml`).FindStringSubmatch(unit)
	if mode == nil || !strings.Contains(unit, "\nDynamicUser=yes\n") {
		t.Fatal("the unit does not say how the file is installed, or for whom")
	}
	if bits, err := strconv.ParseUint(mode[1], 8, 12); err != nil || bits&0o004 == 0 {
		t.Errorf("the file has mode %s (%v), which the service's user cannot read", mode[1], err)
	}
}
