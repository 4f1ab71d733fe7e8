# Work for awk: fields, arrays, patterns and arithmetic over a text.
{
    lines++
    for (i = 1; i <= NF; i++) {
        if ($i ~ /^[a-z]+$/) words[$i]++
        else if ($i ~ /[0-9]/) numbers += length($i)
        else others[substr($i, 1, 2)]++
    }
    if (NR % 3 == 0) gsub(/[aeiou]/, "")
    sum = (sum * 31 + length($0)) % 1000003
}
END {
    for (word in words) if (words[word] > most) { most = words[word]; name = word }
    print lines, numbers, sum, name, most
}
