\\ For PARI: numbers(), primes().
numbers() = while(1, zeta(3 + random(10) / 7.));
primes() = while(1, factor(random(2^70)));
