package config

import (
	"regexp"
	"strings"
)

// What commands need of a file, for Document.ErrOf.
var (
	// NeedsAdmin is for who asks the admin address.
	NeedsAdmin = func(path string) bool { return path == "admin.listen" }
	// NeedsBroker is for who asks the brokers: what handles the messages is nothing to them, nor where they tell of it.
	NeedsBroker = func(path string) bool {
		return strings.HasPrefix(path, "embedded.") || strings.HasPrefix(path, "consumers.") && !handling.MatchString(path)
	}
)

// handling is what only a consumer that runs needs.
var handling = regexp.MustCompile(`^consumers\.[^.\[]+\.(routes|batch|middleware)\b`)
