// Kernels in Go that the rules have not seen: go NAME computes one of them for ever.
package main

import (
	"encoding/json"
	"math"
	"os"
	"sort"
)

var sink float64
var state uint64 = 88172645463325252

func next() uint64 {
	state ^= state << 13
	state ^= state >> 7
	state ^= state << 17
	return state
}

type curve interface{ at(x float64) float64 }
type line struct{ a, b float64 }
type wave struct{ f float64 }
type bell struct{ s float64 }

func (l line) at(x float64) float64 { return l.a*x + l.b }
func (w wave) at(x float64) float64 { return math.Sin(w.f * x) }
func (b bell) at(x float64) float64 { return math.Exp(-x * x / b.s) }

type counter interface{ step(n int) int }
type odd struct{ seen int }
type even struct{ seen int }

func (o *odd) step(n int) int  { o.seen++; return n*3 + 1 }
func (e *even) step(n int) int { e.seen++; return n / 2 }

func main() {
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	switch name {
	case "curves":
		var all []curve
		for i := 0; i < 999; i++ {
			all = append(all, []curve{line{2, 1}, wave{.3}, bell{4}}[next()%3])
		}
		for x := 0.0; ; x += 1e-6 {
			for _, c := range all {
				sink += c.at(x)
			}
		}
	case "counters":
		all := []counter{&even{}, &odd{}}
		for {
			for n := int(next()%100000) + 1; n != 1; {
				n = all[n&1].step(n)
			}
		}
	case "json":
		for {
			text, _ := json.Marshal(map[string]any{"id": next() % 1000, "names": []string{"a", "bc"}, "ok": true})
			var back map[string]any
			json.Unmarshal(text, &back)
		}
	case "sorting":
		for {
			all := make([]int, 20000)
			for i := range all {
				all[i] = int(next() % 100000)
			}
			sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
		}
	case "series":
		for {
			sum := 0.0
			for i := 1; i < 100000; i++ {
				sum += math.Sqrt(float64(i)) / float64(i+1)
			}
			sink = sum
		}
	}
}
