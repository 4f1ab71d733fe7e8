# Rscript bench.R svd|loop|words
what <- commandArgs(TRUE)[1]
if (what == "svd") repeat svd(matrix(rnorm(10000), 100))
if (what == "loop") repeat { x <- 1; for (i in 1:100000) x <- x * .999 + i / (x + 1) }
if (what == "words") repeat table(paste0("w", sample(1000, 20000, TRUE)))
