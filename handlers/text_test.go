package handlers_test

import (
	"errors"
	"testing"
	"time"

	"github.com/longshoremq/longshore/broker"
	"github.com/longshoremq/longshore/handlers"
)

func TestTextIsWhatTheFieldWants(t *testing.T) {
	var into struct {
		Name   string         `yaml:"name"`
		Count  int            `yaml:"count"`
		Share  *float64       `yaml:"share"`
		On     bool           `yaml:"on"`
		Wait   time.Duration  `yaml:"wait"`
		Token  broker.Secret  `yaml:"token"`
		Nested map[string]any `yaml:"nested"`
	}
	err := handlers.NewOptions(map[string]any{
		"name": handlers.Text("12"), "count": handlers.Text("12"), "share": handlers.Text("0.5"), "on": handlers.Text("true"),
		"wait": handlers.Text("2s"), "token": handlers.Text("0815"), "nested": map[string]any{"count": handlers.Text("7")},
	}).Decode(&into)
	if err != nil {
		t.Fatal(err)
	}
	if into.Name != "12" || into.Count != 12 || *into.Share != 0.5 || !into.On || into.Wait != 2*time.Second ||
		into.Token.Reveal() != "0815" {
		t.Errorf("%+v", into)
	}
	again := struct {
		Count int `yaml:"count"`
	}{}
	if err := handlers.NewOptions(into.Nested).Decode(&again); err != nil || again.Count != 7 {
		t.Errorf("decoded again: %+v, %v", again, err)
	}
	var wrong handlers.OptionErrors
	err = handlers.NewOptions(map[string]any{"count": handlers.Text("many")}).Decode(&again)
	if !errors.As(err, &wrong) || len(wrong) != 1 || wrong[0].Path != "count" {
		t.Errorf("text for a number: %v", err)
	}
}
