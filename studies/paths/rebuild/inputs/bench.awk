# Word counts, fields, patterns and substitutions.
{
  lines++
  for (i = 1; i <= NF; i++) {
    word = tolower($i)
    gsub(/[^a-z0-9]/, "", word)
    if (word != "") count[word]++
  }
}
/^[ \t]*(if|while|for)[ \t]*\(/ { branches++ }
/\/\*.*\*\// { comments++ }
length($0) > 72 { long++; width += length($0) }
{ if (match($0, /[a-z_]+\(/)) calls[substr($0, RSTART, RLENGTH - 1)]++ }
$NF ~ /;$/ { statements++ }
END {
  # The order of the words differs from run to run.
  for (word in count) {
    if (count[word] > most || (count[word] == most && word < name)) { most = count[word]; name = word }
  }
  for (call in calls) different++
  print lines, branches, comments, long, width, statements, different, name, most
}
