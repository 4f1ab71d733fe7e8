# bench.tcl float|lists: numbers or lists for ever.
proc float {} {
    set x 1.0; set y 0.5
    for {set i 0} {$i < 100000} {incr i} {
        set d [expr {$x * $x + $y * $y}]
        set x [expr {$x - 0.01 * $y / $d}]
        set y [expr {$y + 0.01 * $x / $d}]
    }
}
proc lists {} {
    for {set i 0} {$i < 20000} {incr i} { lappend all [expr {$i * 7919 % 997}]; set seen($i) 1 }
    return [llength [lsort -integer $all]]
}
while 1 { [lindex $argv 0] }
