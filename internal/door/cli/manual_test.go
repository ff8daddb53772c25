package cli

import "testing"

func TestEveryVisibleCommandHasAPage(t *testing.T) {
	pages := map[string]Page{}
	for _, p := range Manual() {
		pages[p.Name] = p
	}
	a := &app{}
	a.ui = newUI(a.cfg)
	n := 1
	for _, c := range a.root().Commands() {
		if c.Hidden {
			if _, ok := pages["caisson-"+c.Name()]; ok {
				t.Errorf("the hidden command %s has a page", c.Name())
			}
			continue
		}
		n++
		p, ok := pages["caisson-"+c.Name()]
		if !ok {
			t.Errorf("%s has no page", c.Name())
			continue
		}
		if p.Short == "" || p.Text == "" || len(p.Sections) != 3 || p.Sections[0].Text == "" || p.Examples == "" && c.Name() != "version" {
			t.Errorf("the page of %s is not complete: %+v", c.Name(), p)
		}
	}
	if n != len(pages) {
		t.Errorf("%d commands, %d pages", n, len(pages))
	}
}
