package remote

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode"
)

// target is [user@]host[:port] as a person writes it; user and port may be "".
type target struct{ user, host, port string }

// CheckName says what is wrong with the name of a host, before anybody is asked.
func CheckName(name string) error {
	_, err := parseTarget(name)
	return err
}

func parseTarget(s string) (target, error) {
	var t target
	rest := strings.TrimPrefix(s, "ssh://")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		t.user, rest = rest[:i], rest[i+1:]
		if t.user == "" {
			return t, fmt.Errorf("%q: no user in front of the @", s)
		}
	}
	switch {
	case strings.HasPrefix(rest, "["): // [::1]:22
		end := strings.IndexByte(rest, ']')
		if end < 0 || (end+1 < len(rest) && rest[end+1] != ':') {
			return t, fmt.Errorf("%q: [ADDRESS]:PORT was expected", s)
		}
		t.host, t.port = rest[1:end], strings.TrimPrefix(rest[end+1:], ":")
	case strings.Count(rest, ":") > 1 && net.ParseIP(rest) != nil: // a bare IPv6 address
		t.host = rest
	default:
		t.host, t.port, _ = strings.Cut(rest, ":")
		if strings.HasSuffix(rest, ":") {
			return t, fmt.Errorf("%q: no port behind the colon", s)
		}
	}
	if t.port != "" && !validPort(t.port) {
		return t, fmt.Errorf("%q: %s is not a port", s, t.port)
	}
	// what OpenSSH refuses, too: such a name could be an option, or a command in somebody's configuration
	if t.host == "" || strings.HasPrefix(t.host, "-") || strings.ContainsFunc(s, unicode.IsControl) || strings.ContainsAny(t.host, "'`\"$\\;&<>|(){} \t\r\n\x00/") {
		return t, fmt.Errorf("%q is not the name of a host", s)
	}
	if strings.HasPrefix(t.user, "-") || strings.ContainsAny(t.user, "'`\";&<>|(){}\r\n\x00") {
		return t, fmt.Errorf("%q: %q is not the name of a user", s, t.user)
	}
	return t, nil
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}
