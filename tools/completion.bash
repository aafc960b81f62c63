# Completion of inferctl for bash. The words come from inferctl's own help, so they are always its own.
_inferctl() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command= word words
  COMPREPLY=()
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in
      -*) ;;
      *) command=$word; break ;;
    esac
  done
  case "$previous" in
    --socket | --control-socket | --template)
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
    --model)
      case "$command" in
        run | chat) words=$(inferctl list --json 2>/dev/null | grep -o '"name":"[^"]*"' | cut -d '"' -f 4) ;;
        *) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
      esac
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
      return
      ;;
  esac
  if [ -z "$command" ]; then
    words=$(inferctl --help 2>/dev/null | sed -n 's/^  \([a-z-]*\) .*/\1/p')
  elif [[ $current == -* ]]; then
    words=$(inferctl "$command" --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p')
  elif [ "$command" = cache ]; then
    words="stat flush pin unpin"
  elif [ "$command" = log-level ]; then
    words="trace debug info warn error off"
  else
    return
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _inferctl inferctl
