package remote

import (
	"net"
	"syscall"
)

// promptConn acknowledges at once what arrives. A server of OpenSSH leaves
// Nagle's algorithm on until a command runs: it holds back each of its small
// answers until the one before is acknowledged, which the kernel puts off by
// 40 ms. The kernel forgets the wish with every segment that is sent.
type promptConn struct {
	*net.TCPConn
	raw syscall.RawConn
}

func prompt(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	return promptConn{tcp, raw}
}

func (c promptConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.acknowledge()
	return n, err
}

func (c promptConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.acknowledge()
	return n, err
}

func (c promptConn) acknowledge() {
	c.raw.Control(func(fd uintptr) { // without it, it is slower and right all the same
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
	})
}
