package retry

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// Config comes back from its JSON, which people can write: times have units.
func TestConfigJSON(t *testing.T) {
	all := Config{Attempts: 3, Timeout: 90 * time.Second, Backoff: 250 * time.Millisecond, MaxBackoff: time.Minute, Hedge: 1500 * time.Microsecond}
	for want, c := range map[string]Config{
		`{}`:             {},
		`{"timeout":-1}`: {Timeout: -1},
		`{"attempts":3,"timeout":"1m30s","backoff":"250ms","max_backoff":"1m0s","hedge":"1.5ms"}`: all,
	} {
		data, err := json.Marshal(c)
		if err != nil || string(data) != want {
			t.Errorf("%s, %v; want %s", data, err, want)
		}
		var back Config
		if err := json.Unmarshal(data, &back); err != nil || mustJSON(t, back) != want {
			t.Errorf("%s comes back as %s, %v", data, mustJSON(t, back), err)
		}
	}
	// What is not named stays.
	c := all
	if err := json.Unmarshal([]byte(`{"timeout":"5s","hedge":null}`), &c); err != nil || c.Timeout != 5*time.Second || c.Hedge != all.Hedge || c.Attempts != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	for text, want := range map[string]string{
		`{"timeout":30}`:          `30 is no time; write it with its unit, like "30s"`,
		`{"backoff":"30"}`:        `"30" is no time`,
		`{"hedge":"-"}`:           `"-" is no time`,
		`{"time_out":"3s"}`:       `unknown field "time_out"`,
		`{"attempts":"3"}`:        "attempts",
		`{"max_backoff":{"s":3}}`: "is no time",
	} {
		c := all
		if err := json.Unmarshal([]byte(text), &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		} else if mustJSON(t, c) != mustJSON(t, all) {
			t.Errorf("%s leaves %s behind", text, mustJSON(t, c))
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
