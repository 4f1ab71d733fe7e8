/* For Regina: words for ever. */
do forever
  do i = 1 to 10000
    w = 'w' || i // 977
    seen.w = length(w) + i
  end
end
