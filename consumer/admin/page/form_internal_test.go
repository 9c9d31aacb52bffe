package page

import (
	"net/http"
	"net/url"
	"reflect"
	"testing"
	"time"
)

// FuzzOrder: whatever a form says, letters are meant only where it says which, and the form that a plan hands on means the same
// an hour later.
func FuzzOrder(f *testing.F) {
	f.Add("scope=all&since=2h30m&class=decode&state=waiting&rate=0")
	f.Add("scope=ticked&place=0/17&place=18&sure=yes&number=2&again=yes&to=orders&sum=x")
	f.Add("scope=all&since=2562047h47m16.854775807s&rate=1e309&number=-1&sure=yes")
	f.Add("scope=ticked&key=%00%ff+&place=&rate=0.1&box=+dead+")
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		said, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		o, wrong := orderOf(jobReplay, &http.Request{PostForm: said}, now)
		filter, unmeant := o.meant(Letters{})
		if wrong != nil || unmeant != nil {
			return // nothing is planned
		}
		if !(o.rate >= 0 && o.rate <= 1e7) || o.sure && o.number < 1 {
			t.Errorf("an order of %v a second, number %d", o.rate, o.number)
		}
		if o.Scope != scopeAll && (o.Scope != scopeTicked || len(filter.Places) == 0) {
			t.Errorf("scope %q means %+v", o.Scope, filter)
		}
		handed := url.Values{}
		for _, one := range o.form() {
			handed.Add(one.Name, one.Value)
		}
		again, err := orderOf(jobReplay, &http.Request{PostForm: handed}, now.Add(time.Hour))
		same, unmeant := again.meant(Letters{})
		if err != nil || unmeant != nil || !reflect.DeepEqual(same, filter) || again.rate != o.rate || again.to != o.to ||
			again.again != o.again || again.Box != o.Box {
			t.Errorf("%+v is handed on as %+v (%v, %v)", o, again, err, unmeant)
		}
	})
}
