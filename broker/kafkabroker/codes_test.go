package kafkabroker

import (
	"strings"
	"testing"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Each code that a client can get says what it is, and stays the code.
func TestCodesHaveAText(t *testing.T) {
	for _, want := range []*kerr.Error{kerr.NetworkException, kerr.StaleBrokerEpoch, kerr.OffsetNotAvailable,
		kerr.PreferredLeaderNotAvailable, kerr.GroupMaxSizeReached, kerr.OffsetMovedToTieredStorage, kerr.FencedMemberEpoch,
		kerr.UnreleasedInstanceID, kerr.UnsupportedAssignor, kerr.StaleMemberEpoch, kerr.UnknownControllerID,
		kerr.TransactionAbortable, kerr.InvalidRegularExpression, kerr.RebootstrapRequired} {
		err := codeErr(want.Code)
		if got := codeOf(err); got != kafka.Error(want.Code) || !strings.Contains(err.Error(), want.Message) {
			t.Errorf("%v: %q, code %d", want, err, got)
		}
	}
	for code := range int16(107) {
		if err := codeErr(code); code > 0 && len(err.Error()) < len("[100] : and a text") {
			t.Errorf("%d: %q", code, err)
		}
	}
}
