package remote

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errTime = errors.New("time is up")

// clock ends a connection attempt, over all its jumps, after one time; it
// stands while a person is asked for something.
type clock struct {
	context.Context
	cancel context.CancelCauseFunc
	limit  time.Duration

	mu     sync.Mutex
	timer  *time.Timer
	end    time.Time
	rest   time.Duration
	paused int
}

func newClock(ctx context.Context, d time.Duration) *clock {
	c := &clock{limit: d, end: time.Now().Add(d)}
	c.Context, c.cancel = context.WithCancelCause(ctx)
	c.timer = time.AfterFunc(d, func() { c.cancel(errTime) })
	return c
}

func (c *clock) stop() {
	c.timer.Stop()
	c.cancel(nil)
}

func (c *clock) left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused > 0 {
		return c.rest
	}
	return max(time.Until(c.end), time.Millisecond)
}

func (c *clock) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused++; c.paused == 1 {
		c.timer.Stop()
		c.rest = max(time.Until(c.end), time.Millisecond)
	}
}

func (c *clock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused--; c.paused == 0 {
		c.end = time.Now().Add(c.rest)
		c.timer.Reset(c.rest)
	}
}

// onEnd calls f when the time is up, unless stop is called before.
func (c *clock) onEnd(f func()) (stop func() bool) { return context.AfterFunc(c, f) }
