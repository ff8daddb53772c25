package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func TestHostileForms(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, c := range []struct {
		in, want string // want "" is a refusal
	}{
		{"example.com", "example.com"},
		{"EXAMPLE.Com", "example.com"},
		{"example.com.", "example.com"},
		{"a_b.example.com", "a_b.example.com"},
		{"r3---sn-4g5e.example.com", "r3---sn-4g5e.example.com"},
		{"localhost", "localhost"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"xn--fiqs8s", "xn--fiqs8s"},
		{long + ".com", long + ".com"},
		{"8.8.8.8", "8.8.8.8"},
		{"[2606:4700::1111]", "2606:4700::1111"},
		{"[2606:4700:0::1111]", "2606:4700::1111"},
		{"4chan.org", "4chan.org"},
		{"1.2.3.4.example", "1.2.3.4.example"},

		{"", ""}, {".", ""}, {"..", ""}, {".com", ""}, {"a..b", ""}, {"example.com..", ""},
		{"-a.com", ""}, {"a-.com", ""}, {long + "a.com", ""}, {strings.Repeat("a.", 127) + "com", ""},
		{"example.com\x00.evil.com", ""}, {"example.com%00.evil.com", ""}, {"ex%61mple.com", ""},
		{" example.com", ""}, {"example.com ", ""}, {"exam\tple.com", ""}, {"example.com\r\nX: y", ""},
		{"user@example.com", ""}, {"allowed@evil", ""}, {"example.com/x", ""}, {"example.com\\x", ""}, {"example.com#x", ""}, {"example.com?x", ""},
		{"b\u00fccher.example", ""}, {"ex\u0430mple.com", ""}, {"example\u3002com", ""}, {"example\uff0ecom", ""}, {"\u2460.com", ""}, {"exa\u00admple.com", ""},
		{"xn--", ""}, {"xn--a", ""}, {"xn--example-", ""}, {"xn--example-.com", ""}, {"xn--999999999.com", ""}, {"xn--a-ecp.ru\x00", ""}, {"*.example.com", ""},
		{"[example.com]", ""}, {"[127.0.0.1]", ""}, {"[::1", ""}, {"::1]", ""}, {"[[::1]]", ""}, {"[]", ""}, {"::1", ""}, {"2606:4700::1111", ""},

		{"127.1", ""}, {"0x7f.1", ""}, {"0x7f000001", ""}, {"2130706433", ""}, {"0177.0.0.1", ""}, {"127.0.0.01", ""}, {"127.0.0.1.", ""}, {"1.2.3", ""},
		{"1.2.3.4.5", ""}, {"256.1.1.1", ""}, {"0x7F.0.0.1", ""}, {"127.0.0.0x1", ""}, {"foo.0x", ""}, {"foo.1", ""}, {"foo.0x1f.", ""}, {"1e3", "1e3"}, {"0", ""}, {"1.2.3.\uff14", ""},
		{"[::ffff:127.0.0.1]", ""}, {"[::ffff:a9fe:a9fe]", ""}, {"[::127.0.0.1]", ""}, {"[64:ff9b::7f00:1]", ""}, {"[64:ff9b:1::1]", ""}, {"[2002:7f00:1::]", ""},
		{"[2001::1]", ""}, {"[::ffff:0:127.0.0.1]", ""}, {"[2606:4700::5efe:7f00:1]", ""}, {"[fe80::1%25eth0]", ""}, {"[fe80::1%eth0]", ""}, {"[::1%lo]", ""},
	} {
		h, err := ParseHost(c.in)
		if c.want == "" && err == nil {
			t.Errorf("ParseHost(%q) = %q, not refused", c.in, h)
		}
		if c.want != "" && (err != nil || h.String() != c.want) {
			t.Errorf("ParseHost(%q) = %q, %v, want %q", c.in, h, err, c.want)
		}
		if (err != nil) != h.IsZero() {
			t.Errorf("ParseHost(%q): a refusal beside %q", c.in, h)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\x00\r\n\t") {
			t.Errorf("ParseHost(%q): raw text in %q", c.in, err)
		}
	}
}

func TestAuthority(t *testing.T) {
	for _, c := range []struct {
		in        string
		otherwise uint16
		want      string
	}{
		{"Example.com.:443", 0, "example.com:443"},
		{"example.com", 80, "example.com:80"},
		{"[2606:4700::1]:8443", 0, "[2606:4700::1]:8443"},
		{"[2606:4700::1]", 80, "[2606:4700::1]:80"},
		{"8.8.8.8:53", 0, "8.8.8.8:53"},

		{"example.com", 0, ""}, {"example.com:", 80, ""}, {"example.com:0", 0, ""}, {"example.com:080", 0, ""}, {"example.com:+80", 0, ""}, {"example.com:65536", 0, ""},
		{"example.com:80:80", 0, ""}, {"example.com: 80", 0, ""}, {"example.com:80 ", 0, ""}, {"example.com:-1", 0, ""}, {"example.com:http", 0, ""}, {"example.com:8_0", 0, ""},
		{"user:pw@example.com:80", 0, ""}, {"example.com@evil.com:80", 0, ""}, {":80", 0, ""}, {"[::1]:80:1", 0, ""}, {"[::1]x:80", 0, ""}, {"::1:80", 0, ""}, {"", 80, ""},
		{"example.com:443/path", 0, ""}, {"http://example.com:443", 0, ""}, {strings.Repeat("a", 400) + ":1", 0, ""},
	} {
		d, err := ParseAuthority(c.in, c.otherwise)
		if c.want == "" && err == nil {
			t.Errorf("ParseAuthority(%q) = %v, not refused", c.in, d)
		}
		if c.want != "" && (err != nil || d.String() != c.want) {
			t.Errorf("ParseAuthority(%q) = %v, %v, want %q", c.in, d, err, c.want)
		}
	}
}

func TestURLForms(t *testing.T) {
	for _, c := range []struct{ in, dest, path string }{
		{"http://example.com/a?b=c", "example.com:80", "/a?b=c"},
		{"HTTP://EXAMPLE.com", "example.com:80", "/"},
		{"http://example.com:8080?x", "example.com:8080", "/?x"},
		{"http://example.com/a%2Fb", "example.com:80", "/a%2Fb"},

		{"https://example.com/", "", ""}, {"ftp://example.com/", "", ""}, {"//example.com/", "", ""}, {"/x", "", ""}, {"http:/example.com", "", ""}, {"http:example.com", "", ""},
		{"http://user@example.com/", "", ""}, {"http://allowed.com:80@evil.com/", "", ""}, {`http://allowed.com\@evil.com/`, "", ""}, {"http://evil.com#.allowed.com/", "", ""},
		{"http://example.com/a b", "", ""}, {"http://example.com/a\r\nb", "", ""}, {"http://example.com/\x7f", "", ""}, {"http:///x", "", ""}, {"http://example.com/a#b", "", ""}, {`http://example.com/a\b`, "", ""},
	} {
		u, err := ParseURL(c.in)
		if c.dest == "" && err == nil {
			t.Errorf("ParseURL(%q) = %+v, not refused", c.in, u)
		}
		if c.dest != "" && (err != nil || u.Dest.String() != c.dest || u.Path != c.path) {
			t.Errorf("ParseURL(%q) = %v %q, %v", c.in, u.Dest, u.Path, err)
		}
	}
	for in, ok := range map[string]bool{"example.com": true, "example.com.": false, "127.0.0.1": false, "::1": false, "": false} {
		if _, err := ParseSNI(in); (err == nil) != ok {
			t.Errorf("ParseSNI(%q): %v", in, err)
		}
	}
}

func TestClasses(t *testing.T) {
	for in, want := range map[string]Class{
		"8.8.8.8": ClassPublic, "2606:4700::1": ClassPublic, "172.32.0.1": ClassPublic, "100.128.0.1": ClassPublic, "11.0.0.0": ClassPublic, "126.255.255.255": ClassPublic,
		"0.0.0.0": ClassUnspecified, "0.1.2.3": ClassUnspecified, "::": ClassUnspecified,
		"127.0.0.1": ClassLoopback, "127.255.255.254": ClassLoopback, "::1": ClassLoopback,
		"10.1.2.3": ClassPrivate, "172.16.0.1": ClassPrivate, "172.31.255.255": ClassPrivate, "192.168.1.1": ClassPrivate, "fd12::1": ClassPrivate, "fc00::1": ClassPrivate, "fec0::1": ClassPrivate,
		"100.64.0.1": ClassShared, "100.127.255.255": ClassShared,
		"169.254.1.1": ClassLinkLocal, "fe80::1": ClassLinkLocal, "fe80::1%eth0": ClassLinkLocal,
		"169.254.169.254": ClassMetadata, "169.254.170.2": ClassMetadata, "100.100.100.200": ClassMetadata, "192.0.0.192": ClassMetadata, "168.63.129.16": ClassMetadata, "fd00:ec2::254": ClassMetadata, "fd20:ce::254": ClassMetadata,
		"224.0.0.251": ClassMulticast, "239.1.1.1": ClassMulticast, "ff02::fb": ClassMulticast,
		"255.255.255.255": ClassBroadcast, "240.0.0.1": ClassReserved, "192.0.0.8": ClassReserved, "192.88.99.1": ClassReserved, "100::1": ClassReserved, "4000::1": ClassReserved, "2001:10::1": ClassReserved,
		"192.0.2.1": ClassDocumentation, "198.51.100.1": ClassDocumentation, "203.0.113.9": ClassDocumentation, "2001:db8::1": ClassDocumentation, "3fff::1": ClassDocumentation,
		"198.18.0.1": ClassBenchmark, "198.19.255.255": ClassBenchmark, "2001:2::1": ClassBenchmark,
		"::ffff:8.8.8.8": ClassEmbedded, "::8.8.8.8": ClassEmbedded, "64:ff9b::808:808": ClassEmbedded, "64:ff9b:1::1": ClassEmbedded, "2002:808:808::1": ClassEmbedded, "2001:0:1::1": ClassEmbedded,
		"::ffff:0:8.8.8.8": ClassEmbedded, "2606:4700::5efe:808:808": ClassEmbedded, "2606:4700::200:5efe:808:808": ClassEmbedded,
	} {
		if got := ClassOf(netip.MustParseAddr(in)); got != want {
			t.Errorf("%s is %q, want %q", in, got, want)
		}
	}
	if c := ClassOf(netip.Addr{}); c != "" {
		t.Errorf("no address is %q", c)
	}
}

func TestGrantOfSpecialAddress(t *testing.T) {
	for _, c := range []struct {
		rule, addr string
		class      Class
		want       bool
	}{
		{"127.0.0.1/32", "127.0.0.1", ClassLoopback, true},
		{"127.0.0.0/8", "127.0.0.1", ClassLoopback, true},
		{"0.0.0.0/0", "127.0.0.1", ClassLoopback, false},
		{"0.0.0.0/1", "10.0.0.1", ClassPrivate, false},
		{"10.2.0.0/16", "10.2.3.4", ClassPrivate, true},
		{"10.2.0.0/16", "10.3.3.4", ClassPrivate, false},
		{"::/0", "::1", ClassLoopback, false},
		{"fd12::/16", "fd12::1", ClassPrivate, true},
		{"169.254.0.0/16", "169.254.169.254", ClassMetadata, false},
		{"169.254.169.254/32", "169.254.169.254", ClassMetadata, true},
		{"8.8.8.0/24", "8.8.8.8", ClassOwn, false},
		{"8.8.8.8/32", "8.8.8.8", ClassOwn, true},
	} {
		if got := grants(netip.MustParsePrefix(c.rule), netip.MustParseAddr(c.addr), c.class); got != c.want {
			t.Errorf("%s for %s (%s): %v", c.rule, c.addr, c.class, got)
		}
	}
	if grants(netip.Prefix{}, netip.MustParseAddr("127.0.0.1"), ClassLoopback) {
		t.Error("no rule grants")
	}
}

// FuzzDest holds what any parser admits to its own promises: one form, and no
// way to write another host with it.
func FuzzDest(f *testing.F) {
	for _, s := range []string{"example.com:443", "[::1]:80", "http://a.b/c", "0x7f.1", "xn--bcher-kva.example", "a.b.:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		check := func(h Host) {
			out := h.String()
			if strings.Trim(out, "abcdefghijklmnopqrstuvwxyz0123456789-_.:") != "" || out == "" {
				t.Fatalf("%q gave %q", s, out)
			}
			if h.addr.IsValid() == (h.name != "") {
				t.Fatalf("%q gave a host that is not one of two: %+v", s, h)
			}
			again := out
			if h.addr.Is6() {
				again = "[" + out + "]"
			}
			if back, err := ParseHost(again); err != nil || back != h {
				t.Fatalf("%q gave %q, which gave %q, %v", s, out, back, err)
			}
		}
		if h, err := ParseHost(s); err == nil {
			check(h)
		}
		if d, err := ParseAuthority(s, 80); err == nil {
			if check(d.Host); d.Port == 0 {
				t.Fatalf("%q has no port", s)
			}
		}
		if u, err := ParseURL(s); err == nil {
			if check(u.Dest.Host); !strings.HasPrefix(u.Path, "/") {
				t.Fatalf("%q has the path %q", s, u.Path)
			}
		}
		if h, err := ParseSNI(s); err == nil {
			check(h)
		}
	})
}
