# Completion of corewise in fish. `corewise complete` knows what can stand at the cursor.
function __corewise_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token --cut-at-cursor)
    set -l lines ($words[1] complete -- $words[2..-1] 2>/dev/null)
    if string match --quiet --regex '^\t' -- $lines[1]
        # So many words belong to a command of its own.
        set -l own (string trim -- $lines[1])
        complete --do-complete (string join ' ' -- (string escape -- $words[(math 0 - $own)..-1]))
    else
        printf '%s\n' $lines
    end
end

complete --command corewise --no-files --keep-order --arguments '(__corewise_complete)'
