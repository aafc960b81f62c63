# What quickstart.sh, run_tests.sh and fetch_model.sh share. Sourced by bash scripts, not run.
# Messages go to standard error, so that a script's standard output stays what was asked for.

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache_dir=${XDG_CACHE_HOME:-$HOME/.cache}/inferd

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }

# fail "what went wrong" "what to do about it"
fail() {
  printf 'error: %s\n' "$1" >&2
  shift
  local line
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

# Without a terminal the bold marks would only be noise in a log.
[ -t 2 ] || say() { printf '==> %s\n' "$*" >&2; }

# Prints the packages of the named groups.
packages_of() {
  local group
  for group in "$@"; do
    awk -v group="$group" '!/^#/ && $2 == group { print $1 }' "$source_dir/tools/packages.txt"
  done
}

# Prints those of the named packages that are not installed.
packages_missing() {
  local name
  for name in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || echo "$name"
  done
}

# install_packages GROUP...: installs what is missing. With everything there it touches neither the
# network nor sudo. With $offline=1 it refuses instead of installing.
install_packages() {
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || fail \
    "this script installs packages with apt-get, and this system has none." \
    "Install what tools/packages.txt lists by your system's own means, then build with" \
    "cmake --preset release && cmake --build --preset release"
  local missing
  # shellcheck disable=SC2046
  missing=$(packages_missing $(packages_of "$@") | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  [ "${offline:-0}" = 0 ] || fail "these Debian packages are missing, and --offline forbids fetching them:" \
    "$missing" "Install them, or run again without --offline."

  local root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "Debian packages are missing, and there is no sudo to install them." \
      "As root, run: apt-get install $missing"
    root=(sudo)
    say "Installing with sudo (it may ask for your password): $missing"
  else
    say "Installing: $missing"
  fi
  local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
  "${apt[@]}" update >&2 || fail "apt-get update failed (its message is above)." \
    "Check the network and /etc/apt/sources.list, then run this again."
  # shellcheck disable=SC2086
  "${apt[@]}" install --no-install-recommends $missing >&2 || fail \
    "apt-get install failed (its message is above)." \
    "Check the network or repair what it names, then run this again: what is installed is not fetched twice."
}

# need_space FOLDER MEGABYTES "what needs it" "what else could be done"
need_space() {
  local free_mb
  free_mb=$(df --output=avail --block-size=1M "$1" | tail -n 1)
  [ "$free_mb" -ge "$2" ] || fail "$3 needs $2 MB in $1; there are $((free_mb)) MB." "Make room, or $4."
}

# How many compilers may run at once: one a processor, and about 1 GB of memory each.
build_jobs() {
  local processors memory_kb by_memory
  processors=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  by_memory=$((memory_kb / 1000000))
  [ "$by_memory" -ge 1 ] || by_memory=1
  [ "$by_memory" -lt "$processors" ] && echo "$by_memory" || echo "$processors"
}

# configure PRESET [cmake option...]: quiet unless it fails.
configure() {
  local preset=$1 log
  shift
  mkdir -p "$source_dir/build" 2>/dev/null && [ -w "$source_dir/build" ] || fail \
    "$source_dir/build cannot be written by user $(id -un)." \
    "Run as the user who owns it, or take a copy of the source of your own."
  log=$(mktemp)
  if ! (cd "$source_dir" && cmake --preset "$preset" "$@") >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    fail "configuring the preset '$preset' failed (cmake's message is above)." \
      "If the folder build/$preset is from another machine or user, remove it and run this again."
  fi
  rm -f "$log"
}

# build PRESET [target...]
build() {
  local preset=$1
  shift
  local targets=()
  [ $# = 0 ] || targets=(--target "$@")
  (cd "$source_dir" && cmake --build --preset "$preset" -j "$(build_jobs)" "${targets[@]}") >&2 ||
    fail "building the preset '$preset' failed (the compiler's message is above)."
}
