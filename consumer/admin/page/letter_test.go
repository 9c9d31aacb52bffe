package page_test

import (
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/longshoremq/longshore/consumer/admin/page"
)

// TestLetterOfAnother: where others have their letters in the same topic, the page of a consumer shows and edits none of theirs,
// whatever place the address names.
func TestLetterOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := letterPage(t, func(l *page.Letters) { l.Handler = "orders" }, "of billing")
		cookie := loginAt(t, h)
		const path = "/ui/c/orders/letters/0/0"
		for what, a := range map[string]int{
			"without a login": getAt(h, path, "").Code,
			"shown":           getAt(h, path, cookie).Code,
			"edited":          postTo(h, path, url.Values{"value": {"x"}, "to": {"orders"}}, cookie).Code,
		} {
			if a != http.StatusNotFound {
				t.Errorf("%s: %d", what, a)
			}
		}
	})
}
