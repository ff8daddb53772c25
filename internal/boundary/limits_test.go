package boundary

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestDiskWatch has a folder grow on a clock of its own: how far it gets past the
// limit before it is noticed, and how often it is measured meanwhile.
func TestDiskWatch(t *testing.T) {
	const (
		mib   = 1 << 20
		max   = 64 * mib
		tenth = 100 * time.Millisecond
	)
	for _, c := range []struct {
		name    string
		task    func(at time.Duration) int64 // bytes the task has written
		others  func(at time.Duration) int64 // bytes others have written
		cost    time.Duration                // of one look
		blind   bool                         // the file system does not say what is free
		within  int64                        // noticed before it has taken this much; 0: it never is over
		looks   int                          // at most, in ten seconds
		noticed int                          // how often it is over in these
	}{
		{name: "idle", looks: 5},
		{name: "slow", task: rate(mib), looks: 5},
		{name: "others write a lot", others: rate(2000 * mib), looks: 101},
		{name: "others write a lot and looks are slow", others: rate(2000 * mib), cost: time.Second, looks: 6},
		{name: "2 GB/s", task: rate(2000 * mib), within: 450 * mib, looks: 101, noticed: 101},
		{name: "2 GB/s, looks are slow", task: rate(2000 * mib), cost: time.Second, within: 4500 * mib, looks: 6, noticed: 6},
		{name: "100 MB/s", task: rate(100 * mib), within: 90 * mib, looks: 101, noticed: 101},
		{name: "others give back what the task takes", task: rate(500 * mib), others: rate(-500 * mib), within: 1200 * mib, looks: 6, noticed: 5},
		{name: "nothing is known of the file system", task: rate(500 * mib), blind: true, within: 1200 * mib, looks: 5, noticed: 5},
		{name: "room is made, and it grows again", task: func(at time.Duration) int64 {
			if at > 5*time.Second && at < 7*time.Second {
				return 0
			}
			return 65 * mib
		}, within: 66 * mib, looks: 8, noticed: 2},
		{name: "it stays as large as it is", task: func(at time.Duration) int64 { return min(rate(500*mib)(at), 100*mib) }, within: 101 * mib, looks: 9, noticed: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				size := func(f func(time.Duration) int64) int64 {
					if f == nil {
						return 0
					}
					return f(time.Since(begun))
				}
				looks, noticed, first := 0, 0, int64(0)
				w := diskWatch{max: max,
					used: func() (int64, error) {
						looks++
						n := size(c.task)
						time.Sleep(c.cost)
						return n, nil
					},
					free: func() (int64, int64, error) {
						if c.blind {
							return 0, 0, errors.New("no")
						}
						return 1<<50 - size(c.task) - size(c.others), 0, nil
					},
					over: func(int64) {
						if noticed++; noticed == 1 {
							first = size(c.task)
						}
					},
					failed: func(err error) { t.Error(err) },
				}
				ctx, done := context.WithTimeout(context.Background(), 10*time.Second+tenth/2)
				defer done()
				w.run(ctx)
				if c.within == 0 && noticed != 0 || c.within != 0 && (noticed == 0 || first > c.within) {
					t.Errorf("noticed %d times, first at %d MiB; want at most %d MiB", noticed, first/mib, c.within/mib)
				}
				if looks > c.looks || noticed > c.noticed || c.noticed == 2 && noticed != 2 {
					t.Errorf("%d looks, %d times over; want at most %d and %d", looks, noticed, c.looks, c.noticed)
				}
			})
		})
	}
}

// rate returns what is written at so many bytes a second.
func rate(bytes int64) func(time.Duration) int64 {
	return func(at time.Duration) int64 { return int64(at.Seconds() * float64(bytes)) }
}
