// Go: so many parallel loops of some 50 µs: regions COUNT group|channel. "group" starts two goroutines for each and
// waits for them by a WaitGroup; "channel" has two that live on and get and give back work by channels.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

const n = 65536

var x [n]float64

func part(me int) {
	for i := me * n / 2; i < (me+1)*n/2; i++ {
		x[i] = x[i]*0.999 + float64(i)/(1+x[i]*x[i])
	}
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	var work [2]chan bool
	done := make(chan bool)
	for me := range work {
		work[me] = make(chan bool)
		go func() {
			for range work[me] {
				part(me)
				done <- true
			}
		}()
	}
	sum := 0.0
	for region := 0; region < count; region++ {
		if os.Args[2] == "channel" {
			for me := range work {
				work[me] <- true
			}
			<-done
			<-done
		} else {
			var both sync.WaitGroup
			both.Add(2)
			for me := range work {
				go func() {
					part(me)
					both.Done()
				}()
			}
			both.Wait()
		}
		sum += x[region%n]
	}
	fmt.Printf("%.9f\n", sum)
}
