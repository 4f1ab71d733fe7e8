#!/bin/sh
# The pair of programs of the BulldOver paper: povray computes in floating point, hmmer in integers. Both run
# at once, two of each, so that a machine whose cores share FPUs gains from keeping the two povrays apart.
# Usage: demo/pair.sh DIRECTORY (for what the programs write)
set -eu
demo=$(dirname "$(readlink -f "$0")")
out=$1
mkdir -p "$out"

# Random proteins, the same ones every time; the search reads them four times over.
sequences() {
    awk 'BEGIN {
        srand(7)
        letters = "ACDEFGHIKLMNPQRSTVWY"
        for (protein = 1; protein <= 9000; protein++) {
            print ">protein" protein
            line = ""
            for (residue = 0; residue < 400; residue++) line = line substr(letters, 1 + int(20 * rand()), 1)
            print line
        }
    }'
}

sequences > "$out/proteins.fasta"
for _ in 1 2 3 4; do cat "$out/proteins.fasta"; done > "$out/database.fasta"
hmm2build -F "$out/family.hmm" "$demo/family.sto" > "$out/hmm2build.txt"

programs=
for copy in 1 2; do
    povray -D +W360 +H270 +A0.3 +WT1 "+I$demo/scene.pov" "+O$out/scene$copy.png" 2> "$out/povray$copy.txt" &
    programs="$programs $!"
    hmm2search "$out/family.hmm" "$out/database.fasta" > "$out/hmm2search$copy.txt" &
    programs="$programs $!"
done
for program in $programs; do wait "$program"; done
