# Work for the Perl interpreter: patterns, hashes, sorting and numbers, in fixed amounts.
use strict;
use warnings;

my ($file) = @ARGV;
open my $in, '<', $file or die "$file: $!";
my (%count, @lengths, $vowels);
while (my $line = <$in>) {
    last if $. > 400000;
    $count{ lc $1 }++ while $line =~ /([a-zA-Z_]{3,12})/g;
    $vowels += ($line =~ s/[aeiou]+/-/g) || 0;
    push @lengths, length $line;
}
my @sorted = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
my $sum = 0;
for my $i (1 .. 12000000) {
    $sum += $i % 7 == 0 ? $lengths[ $i % @lengths ] : $i & 15;
}
printf "%d %d %d %s\n", scalar @sorted, $vowels, $sum, join ' ', @sorted[ 0 .. 4 ];
