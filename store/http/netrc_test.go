package http

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParseNetrc(t *testing.T) {
	for text, want := range map[string][]login{
		"":                             nil,
		"machine a login b password c": {{"a", "b", "c"}},
		"machine a\n  login b\n  password c\nmachine d login e account x password #f\n": {{"a", "b", "c"}, {"d", "e", "#f"}},
		"# machine z\nmachine a login b\n # password x\ndefault login e":                {{"a", "b", ""}, {"", "e", ""}},
		"machine a macdef init\ncd login x\nput password y\n\nlogin b":                  {{"a", "b", ""}},
		"machine a password \"b c\\\"\\\\\" login \"\"":                                 {{"a", "", `b c"\`}},
		"login x password y machine":                                                    nil,
		"machine a port 21 login b":                                                     {{"a", "b", ""}},
		`machine a login "b`:                                                            {{"a", "b", ""}},
	} {
		if got := parseNetrc(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
	all := []login{{"A.example", "1", ""}, {"b.example", "2", ""}, {"", "3", ""}, {"c.example", "4", ""}}
	for host, want := range map[string]string{"a.EXAMPLE": "1", "b.example": "2", "c.example": "3", "x": "3"} {
		if l := find(all, host); l == nil || l.user != want {
			t.Errorf("%s: %v; want %s", host, l, want)
		}
	}
	if l := find(all[:2], "x"); l != nil {
		t.Errorf("no login is for x, and it gets %v", l)
	}
}

// What was parsed, written down in quotes, is parsed to the same.
func FuzzNetrc(f *testing.F) {
	f.Add("machine a login b password c\ndefault login \"d e\" # f\nmacdef x\n\nmachine g")
	f.Add("machine \"a\\\"b\" password \"c\\\\\"")
	f.Fuzz(func(t *testing.T, text string) {
		got := parseNetrc(text)
		var b strings.Builder
		quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
		for _, l := range got {
			if l.host == "" && !strings.Contains(text, "default") && !strings.Contains(text, `"`) {
				t.Fatalf("a login of no host: %q", l)
			}
			if l.host == "" {
				b.WriteString("default")
			} else {
				fmt.Fprintf(&b, `machine "%s"`, quote.Replace(l.host))
			}
			fmt.Fprintf(&b, " login \"%s\"\n\tpassword \"%s\"\n", quote.Replace(l.user), quote.Replace(l.password))
		}
		if again := parseNetrc(b.String()); !reflect.DeepEqual(again, got) {
			t.Errorf("%q: %q, and again %q", text, got, again)
		}
	})
}

// A range that is taken for one is one.
func FuzzContentRange(f *testing.F) {
	for _, text := range []string{"bytes 0-99/200", "bytes 5-5/*", "bytes */100", "bytes -1-5/10", "bytes 3", "items 0-1/2", "bytes 0/1-2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		from, _, size, ok := ContentRange(text)
		if ok && (from < 0 || size < -1 || !strings.HasPrefix(text, "bytes ")) {
			t.Errorf("%q: %d, %d", text, from, size)
		}
	})
}

// A title has nothing of a URL's password, query and fragment, whatever the rest is.
func FuzzTitle(f *testing.F) {
	f.Add("user", "host:80", "a/b")
	f.Add("u%ser", "ho st", "%zz")
	f.Add("a@b", "[::1", "\n")
	f.Fuzz(func(t *testing.T, user, host, path string) {
		if strings.ContainsAny(user+host, "/?#") || strings.ContainsAny(path, "?#") || strings.Contains(user+host+path, "SECRET") {
			t.Skip()
		}
		for _, end := range []string{"", "?SECRET", "#SECRET", "?a=%zz&SECRET#SECRET"} {
			text := "https://" + user + ":SECRET@" + host + "/" + path + end
			if got := Title(text); strings.Contains(got, "SECRET") {
				t.Errorf("%q: %q", text, got)
			}
		}
	})
}
