# Completion of corewise in bash. `corewise complete` knows what can stand at the cursor. It is asked with the words
# of the line: bash parts them at `=` and `:`, too, so what follows the word before it at once belongs to it.
_corewise() {
    local i word value explained line at=0 left=${COMP_LINE:0:COMP_POINT} words=() begins=() lines=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        ((i == COMP_CWORD)) && word=${left#"${left%%[![:space:]]*}"}
        if ((i == 0)) || [[ $left == [[:space:]]* || -z $left ]]; then
            words+=("$word")
            begins+=("$i")
        else
            words[-1]+=$word
        fi
        left=${left#"${left%%[![:space:]]*}"}
        left=${left#"$word"}
    done
    mapfile -t lines < <("${1/#\~/$HOME}" complete -- "${words[@]:1}" 2>/dev/null)
    COMPREPLY=()
    if [[ ${lines[0]} == $'\t'* ]]; then
        # So many words belong to a command of its own.
        at=${begins[${#words[@]} - ${lines[0]#$'\t'}]}
        if declare -F _comp_command_offset >/dev/null; then
            _comp_command_offset "$at"
        elif declare -F _command_offset >/dev/null; then
            _command_offset "$at"
        elif ((at == COMP_CWORD)); then
            mapfile -t COMPREPLY < <(compgen -c -- "$2")
        else
            compopt -o default 2>/dev/null
        fi
        return
    fi
    for line in "${lines[@]}"; do
        value=${line%%$'\t'*}
        explained=${line:${#value}}
        [[ $value == *[[:space:]\'\"\\\$\&\;\(\)\<\>\|\*\?\`]* ]] && printf -v value '%q' "$value"
        # Bash replaces the part behind the last `=` or `:` alone.
        value=${value#"${words[-1]%"$2"}"}
        # Of several, bash inserts what they have in common: explanations stand behind that.
        if ((${#lines[@]} > 1)) && [[ -n $explained && $COMP_TYPE != 37 ]]; then
            printf -v value '%-16s  %s' "$value" "${explained#$'\t'}"
            value=${value:0:${COLUMNS:-80} - 1}
        fi
        COMPREPLY+=("$value")
    done
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[/=:] ]] && compopt -o nospace 2>/dev/null
    return 0
}

complete -F _corewise corewise
