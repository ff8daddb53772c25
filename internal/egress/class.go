package egress

import (
	"net/netip"
	"slices"
)

// Class is what kind of address one is. Only ClassPublic is reached by a rule
// about names alone; every other takes a rule about the address itself.
type Class string

// The classes. The zero value is no class and never reached.
const (
	ClassPublic        Class = "public"
	ClassUnspecified   Class = "unspecified"
	ClassLoopback      Class = "loopback"
	ClassPrivate       Class = "private"
	ClassShared        Class = "carrier-grade NAT"
	ClassLinkLocal     Class = "link-local"
	ClassMulticast     Class = "multicast"
	ClassBroadcast     Class = "broadcast"
	ClassDocumentation Class = "documentation"
	ClassBenchmark     Class = "benchmark"
	ClassMetadata      Class = "metadata"
	ClassEmbedded      Class = "IPv4 in IPv6"
	ClassReserved      Class = "reserved"
	ClassOwn           Class = "this machine" // an address of one of its interfaces
)

type span struct {
	prefix netip.Prefix
	class  Class
}

// spans are the special ranges, the narrower before the wider.
var spans = []span{
	// Where clouds hand out credentials.
	{one("169.254.169.254"), ClassMetadata}, {one("169.254.169.253"), ClassMetadata}, {one("169.254.170.2"), ClassMetadata},
	{one("169.254.170.23"), ClassMetadata}, {one("100.100.100.200"), ClassMetadata}, {one("192.0.0.192"), ClassMetadata},
	{one("168.63.129.16"), ClassMetadata}, {one("fd00:ec2::254"), ClassMetadata}, {one("fd00:ec2::253"), ClassMetadata},
	{one("fd00:ec2::23"), ClassMetadata}, {one("fd20:ce::254"), ClassMetadata}, {one("fe80::a9fe:a9fe"), ClassMetadata},

	{one("255.255.255.255"), ClassBroadcast},
	{in("0.0.0.0/8"), ClassUnspecified}, {in("10.0.0.0/8"), ClassPrivate}, {in("100.64.0.0/10"), ClassShared},
	{in("127.0.0.0/8"), ClassLoopback}, {in("169.254.0.0/16"), ClassLinkLocal}, {in("172.16.0.0/12"), ClassPrivate},
	{in("192.0.2.0/24"), ClassDocumentation}, {in("192.0.0.0/24"), ClassReserved}, {in("192.88.99.0/24"), ClassReserved},
	{in("192.168.0.0/16"), ClassPrivate}, {in("198.18.0.0/15"), ClassBenchmark}, {in("198.51.100.0/24"), ClassDocumentation},
	{in("203.0.113.0/24"), ClassDocumentation}, {in("224.0.0.0/4"), ClassMulticast}, {in("240.0.0.0/4"), ClassReserved},

	{one("::"), ClassUnspecified}, {one("::1"), ClassLoopback},
	{in("::/96"), ClassEmbedded}, {in("::ffff:0:0/96"), ClassEmbedded}, {in("::ffff:0:0:0/96"), ClassEmbedded},
	{in("64:ff9b::/96"), ClassEmbedded}, {in("64:ff9b:1::/48"), ClassEmbedded}, // NAT64
	{in("2001::/32"), ClassEmbedded}, {in("2002::/16"), ClassEmbedded}, // Teredo, 6to4
	{in("2001:2::/48"), ClassBenchmark}, {in("2001:db8::/32"), ClassDocumentation}, {in("2001::/23"), ClassReserved}, {in("3fff::/20"), ClassDocumentation},
	{in("fc00::/7"), ClassPrivate}, {in("fec0::/10"), ClassPrivate}, {in("fe80::/10"), ClassLinkLocal}, {in("ff00::/8"), ClassMulticast},
}

// globalV6 is all of IPv6 that is given out as public.
var globalV6 = in("2000::/3")

func in(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func one(s string) netip.Prefix {
	a := netip.MustParseAddr(s)
	return netip.PrefixFrom(a, a.BitLen())
}

// ClassOf says what kind of address a is. An IPv4 address in the form of IPv6 is
// ClassEmbedded, whatever is in it.
func ClassOf(a netip.Addr) Class {
	c, _ := classify(a)
	return c
}

// classify also names the range that made it special.
func classify(a netip.Addr) (Class, netip.Prefix) {
	switch {
	case !a.IsValid():
		return "", netip.Prefix{}
	case a.Is4In6():
		return ClassEmbedded, in("::ffff:0:0/96")
	}
	a = a.WithZone("")
	i := slices.IndexFunc(spans, func(s span) bool { return s.prefix.Contains(a) })
	switch {
	case i >= 0:
		return spans[i].class, spans[i].prefix
	case a.Is6() && isatap(a):
		return ClassEmbedded, netip.PrefixFrom(a, 128)
	case a.Is6() && !globalV6.Contains(a):
		return ClassReserved, netip.PrefixFrom(a, 128)
	}
	return ClassPublic, netip.Prefix{}
}

// isatap reports an interface part that ends in an IPv4 address.
func isatap(a netip.Addr) bool {
	b := a.As16()
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// grants says whether a rule about the range rule reaches the special address
// a: only when it says no more than the special range that a is in, so that
// "every address" never means the loopback.
func grants(rule netip.Prefix, a netip.Addr, class Class) bool {
	if !rule.IsValid() || !rule.Contains(a) {
		return false
	}
	if class == ClassOwn || class == ClassMetadata {
		return rule.IsSingleIP()
	}
	_, special := classify(a)
	return special.IsValid() && rule.Bits() >= special.Bits()
}
