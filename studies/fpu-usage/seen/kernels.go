// Kernels of programs that the rules have not seen, in Go: one of them for ever.
package main

import (
	"fmt"
	"math"
	"os"
	"sort"
	"strings"
)

type solid interface{ volume() float64 }
type ball struct{ r float64 }
type box struct{ a, b, c float64 }

func (s ball) volume() float64 { return 4.0 / 3 * math.Pi * s.r * s.r * s.r }
func (s box) volume() float64  { return s.a * s.b * s.c }

var sink float64

func matrix() {
	const n = 128
	var a, b, c [n][n]float64
	for i := range a {
		for j := range a {
			a[i][j], b[i][j] = float64(i+j), float64(i-j)
		}
	}
	for i := range a {
		for j := range a {
			s := 0.0
			for k := range a {
				s += a[i][k] * b[k][j]
			}
			c[i][j] = s
		}
	}
	sink = c[3][4]
}

func solids() {
	all := []solid{ball{1}, box{1, 2, 3}, ball{2}, box{3, 2, 1}, ball{3}}
	for i := 0; i < 100000; i++ {
		for _, s := range all {
			sink += s.volume()
		}
	}
}

func words() {
	counts := map[string]int{}
	for i := 0; i < 20000; i++ {
		for _, w := range strings.Fields(fmt.Sprintf("a%d b%d c", i%99, i%7)) {
			counts[w]++
		}
	}
	keys := make([]string, 0)
	for k := range counts {
		keys = append(keys, k)
	}
	sort.Strings(keys)
}

func main() {
	kernel := map[string]func(){"matrix": matrix, "solids": solids, "words": words}[os.Args[1]]
	for {
		kernel()
	}
}
