package retry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// wire is Config in JSON.
type wire struct {
	Attempts   int      `json:"attempts,omitempty"`
	Timeout    duration `json:"timeout,omitempty"`
	Backoff    duration `json:"backoff,omitempty"`
	MaxBackoff duration `json:"max_backoff,omitempty"`
	Hedge      duration `json:"hedge,omitempty"`
	Reads      int      `json:"reads,omitempty"`
}

// duration is a time with its unit, such as "30s", or -1.
type duration time.Duration

func (d duration) MarshalJSON() ([]byte, error) {
	if d == -1 {
		return []byte("-1"), nil
	}
	return json.Marshal(time.Duration(d).String())
}

func (d *duration) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case "null":
		return nil
	case "-1":
		*d = -1
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("%s is no time; write it with its unit, like \"30s\" or \"500ms\"", data)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is no time; write it with its unit, like \"30s\" or \"500ms\"", text)
	}
	*d = duration(parsed)
	return nil
}

// MarshalJSON writes times with their units: {"timeout":"30s"}.
func (c Config) MarshalJSON() ([]byte, error) {
	return json.Marshal(wire{c.Attempts, duration(c.Timeout), duration(c.Backoff), duration(c.MaxBackoff), duration(c.Hedge), c.Reads})
}

// UnmarshalJSON reads what MarshalJSON writes. What data does not name stays as it is;
// a setting that does not exist is an error.
func (c *Config) UnmarshalJSON(data []byte) error {
	w := wire{c.Attempts, duration(c.Timeout), duration(c.Backoff), duration(c.MaxBackoff), duration(c.Hedge), c.Reads}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil {
		return err
	}
	c.Attempts, c.Timeout, c.Backoff = w.Attempts, time.Duration(w.Timeout), time.Duration(w.Backoff)
	c.MaxBackoff, c.Hedge, c.Reads = time.Duration(w.MaxBackoff), time.Duration(w.Hedge), w.Reads
	return nil
}
