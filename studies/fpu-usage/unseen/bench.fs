\ For Gforth: FLOATS or WORDS for ever.
: floats-step 1e 0.5e 100000 0 do fover fover f* 0.013e f* f- fswap fover 1.0001e f* f+ 3e f/ fswap loop fdrop fdrop ;
: primes-step 0 20000 2 do i 2 = if 1+ else 1 i 2 do j i mod 0= if drop 0 leave then i dup * j > if leave then loop + then loop drop ;
: floats-for-ever begin floats-step again ;
: primes-for-ever begin primes-step again ;
