// Waits and work in Go: go_waits spin|gosched|mutex|works. Each goroutine is locked to its thread.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

var made, ended atomic.Int64
var sink float64

func cpu(clock uintptr) float64 {
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0)
	return float64(t.Sec) + float64(t.Nsec)*1e-9
}
func work(n int) float64 {
	x := 1.0
	for i := 0; i < n; i++ {
		x = x*1.0000001 + 0.5
	}
	return x
}

var telling sync.Mutex

func tell(waited float64) {
	telling.Lock()
	defer telling.Unlock()
	if f, err := os.OpenFile(os.Getenv("TRUTH"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
		fmt.Fprintf(f, "%d %.6f %.6f\n", syscall.Gettid(), waited, cpu(3))
		f.Close()
	}
}

func main() {
	kind := os.Args[1]
	var lock sync.Mutex
	body := func(mine int, waits bool) {
		runtime.LockOSThread()
		waited, seen := 0.0, int64(0)
		for cpu(2) < 1.5 {
			switch {
			case kind == "mutex":
				since := cpu(3)
				lock.Lock()
				waited += cpu(3) - since
				sink = work(2000)
				lock.Unlock()
			case kind == "works":
				counts := map[int]int{}
				for i := 0; i < 20000; i++ {
					counts[i*7919%997]++
				}
				made.Add(int64(len(counts)))
			case waits:
				since := cpu(3)
				for made.Load() == seen && ended.Load() == 0 {
					if kind == "gosched" {
						runtime.Gosched()
					}
				}
				waited += cpu(3) - since
				seen = made.Load()
				sink = work(mine)
			default:
				sink = work(mine)
				made.Add(1)
			}
		}
		ended.Store(1)
		tell(waited)
	}
	var all sync.WaitGroup
	all.Add(1)
	go func() { body(100000, true); all.Done() }()
	body(1500000, false)
	all.Wait()
}
