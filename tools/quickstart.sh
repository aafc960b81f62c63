#!/bin/bash
# From a fresh Debian to a streamed answer: installs packages, builds, fetches a small model, starts a
# private daemon in the background and asks it a question. A second run reuses all that is there,
# the running daemon too.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
usage: tools/quickstart.sh ["prompt"] [--model FILE.gguf]
       tools/quickstart.sh --stop

  "prompt"           what to ask (default: a question about the sea)
  --model FILE.gguf  use this model instead of fetching the sample model; with the packages
                     installed, nothing then touches the network
  --offline          fetch nothing at all; say what is missing instead
  --stop             stop the daemon that an earlier run started
  --help             this text
USAGE
}

prompt="Why is the sea salty? Answer in two sentences."
model=
offline=0
stop=0
prompts_seen=0
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --model)
      [ $# -ge 2 ] || fail "--model needs a file." "For example: tools/quickstart.sh --model ~/models/mine.gguf"
      model=$2
      shift
      ;;
    --model=*) model=${1#--model=} ;;
    --offline) offline=1 ;;
    --stop) stop=1 ;;
    -?*) fail "unknown option '$1'." "tools/quickstart.sh --help lists the options." ;;
    *)
      prompts_seen=$((prompts_seen + 1))
      [ "$prompts_seen" = 1 ] || fail "more than one prompt: '$1'." "Put the whole prompt in quotes."
      [ -n "$1" ] || fail "the prompt is empty." "Leave it out to take the default one."
      prompt=$1
      ;;
  esac
  shift
done

bin=$source_dir/build/release/bin

# Where clients look first; without a usable $XDG_RUNTIME_DIR (root, cron, su) a folder of our own, and
# the advice at the end then names the socket.
if [ -n "${XDG_RUNTIME_DIR:-}" ] && [ -d "$XDG_RUNTIME_DIR" ] && [ -w "$XDG_RUNTIME_DIR" ] && [ -O "$XDG_RUNTIME_DIR" ]; then
  run_dir=$XDG_RUNTIME_DIR/inferd
  advice_prefix=
else
  run_dir=$cache_dir/run
  advice_prefix="export INFERD_SOCKET=$run_dir/inferd.sock INFERD_CONTROL_SOCKET=$run_dir/control.sock"
fi
socket=$run_dir/inferd.sock
control=$run_dir/control.sock
# A Unix socket's address holds 107 bytes.
[ ${#socket} -le 107 ] || fail "the path $socket is too long for a socket (107 bytes at most)." \
  "Set XDG_CACHE_HOME to a folder with a shorter path."

# A fact from the daemon's status or model list, or nothing if no daemon answers.
daemon_fact() {
  [ -x "$bin/inferctl" ] || return 0
  "$bin/inferctl" --control-socket "$control" "$1" --json 2>/dev/null |
    python3 -c "import json, sys; print($2)" 2>/dev/null || true
}
daemon_pid() { daemon_fact status 'json.load(sys.stdin)["pid"]'; }
daemon_model() { daemon_fact list 'json.load(sys.stdin)["models"][0]["path"]'; }

# Asks the daemon to end and waits until it has.
stop_daemon() {
  local pid=$1 waited=0
  kill -TERM "$pid" 2>/dev/null || true
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    waited=$((waited + 1))
    [ "$waited" != 25 ] || say "Waiting for its running answers to end"
    [ "$waited" -lt 400 ] || fail "the daemon (process $pid) does not end." "End it with: kill -KILL $pid"
  done
}

if [ "$stop" = 1 ]; then
  pid=$(daemon_pid)
  [ -n "$pid" ] || { say "No daemon is running on $control"; exit 0; }
  stop_daemon "$pid"
  say "Stopped"
  exit 0
fi

if [ -n "$model" ]; then
  [ -e "$model" ] || fail "there is no file $model." "Check the path given to --model."
  [ ! -d "$model" ] || fail "$model is a folder." "Give the GGUF file itself to --model."
  [ -f "$model" ] && [ -r "$model" ] || fail "$model is not a file that user $(id -un) can read."
  model=$(realpath "$model")
fi

install_packages build

if [ ! -x "$bin/inferctl" ] || [ ! -x "$bin/inferd" ]; then
  need_space "$source_dir" 1000 "building" "take a copy of the source to another disk"
  say "Building inferd (a few minutes; the next time, seconds)"
fi
# The tests need further packages; only README's second command asks for those.
tests=()
[ -f "$source_dir/build/release/CMakeCache.txt" ] || tests=(-DINFERD_TESTS=OFF)
configure release "${tests[@]}"
build release inferd inferctl inferd-bench

if [ -z "$model" ]; then
  if [ "$offline" = 1 ]; then
    model=$("$source_dir/tools/fetch_model.sh" --offline)
  else
    model=$("$source_dir/tools/fetch_model.sh")
  fi
fi

pid=$(daemon_pid)
if [ -n "$pid" ]; then
  serving=$(daemon_model)
  case "$(readlink "/proc/$pid/exe" 2>/dev/null)" in
    *" (deleted)") reason="it was started from an older build" ;;
    *) reason= ;;
  esac
  [ "$serving" = "$model" ] || reason="it serves $serving"
  if [ -n "$reason" ]; then
    say "Restarting the running daemon: $reason"
    stop_daemon "$pid"
    pid=
  fi
fi

if [ -z "$pid" ]; then
  mkdir -p "$run_dir" && chmod 700 "$run_dir" || fail "cannot create $run_dir for the daemon's sockets."
  log=$run_dir/inferd.log
  say "Starting the daemon with $(basename "$model") (its log: $log)"
  # A session of its own: closing the terminal or Ctrl-C here does not reach it.
  setsid "$bin/inferd" --model "$model" --runtime-dir "$run_dir" </dev/null >"$log" 2>&1 &
  pid=$!
  disown "$pid"
  until "$bin/inferctl" --control-socket "$control" status >/dev/null 2>&1; do
    if ! kill -0 "$pid" 2>/dev/null; then
      sed 's/^/  | /' "$log" >&2
      fail "the daemon could not start; the lines above are its log."
    fi
    sleep 0.05
  done
else
  say "Using the daemon that is already running (process $pid)"
fi

say "$prompt"
status=0
"$bin/inferctl" --socket "$socket" run --max-tokens 400 -- "$prompt" || status=$?

{
  echo
  say "How to go on"
  [ -z "$advice_prefix" ] || echo "  $advice_prefix"
  echo "  $bin/inferctl run \"your question\""
  echo "  $bin/inferctl chat"
  echo "  $bin/inferctl status"
  echo "  $source_dir/tools/quickstart.sh --stop      (ends the daemon; it holds the model in memory)"
} >&2
exit "$status"
