package nearest

import "testing"

func TestName(t *testing.T) {
	names := []string{"width", "height", "label", "label_name", "jpg"}
	for name, want := range map[string]string{
		"widht": "width", "Width": "width", "WITH": "width", "labelname": "label_name", "lable": "label",
		"hieght": "height", "jgp": "jpg", "jp": "jpg", "jpeg": "jpg", "j": "",
		"xyz": "", "": "", "a very long name that is like none of them": "",
	} {
		if got := Name(name, names); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
