#!/bin/bash
# Every test there is: the release build with all unit, integration and simulator tests; then under the
# address and undefined-behaviour sanitizers, with all invariants walked and every DCHECK on, the unit tests of
# what the daemon and its clients are made of, the simulator, those integration tests that feed the daemon what
# it must not believe, and a short pass of every fuzz target; then, under the thread sanitizer, what runs on
# several threads.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
usage: tools/run_tests.sh [--fast] [--tests REGEX] [--within MINUTES] [--offline] [--model FILE.gguf]

  --fast             only the release build and its tests
  --tests REGEX      of the release build, only the tests of these names
  --within MINUTES   leave the sanitizers out, and say so, where they would not end in time
  --offline          fetch nothing; say what is missing instead
  --model FILE.gguf  run the integration tests on this copy of the sample model
  --help             this text

The exit code is 0 if every test passed.
USAGE
}

fast=0
tests='.*'
within_s=0
offline=0
model=
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --fast) fast=1 ;;
    --tests)
      [ $# -ge 2 ] || fail "--tests needs a regular expression."
      tests=$2
      shift
      ;;
    --within)
      [[ ${2-} =~ ^[1-9][0-9]{0,3}$ ]] || fail "--within needs a number of minutes."
      within_s=$(($2 * 60))
      shift
      ;;
    --offline) offline=1 ;;
    --model)
      [ $# -ge 2 ] || fail "--model needs a file."
      model=$2
      shift
      ;;
    --model=*) model=${1#--model=} ;;
    *) fail "unknown argument '$1'." "tools/run_tests.sh --help lists the options." ;;
  esac
  shift
done

install_packages build test
if [ -n "$model" ]; then
  [ -f "$model" ] && [ -r "$model" ] || fail "there is no readable file $model." "Check the path given to --model."
  model=$(realpath "$model")
elif [ "$offline" = 1 ]; then
  model=$("$source_dir/tools/fetch_model.sh" --offline)
else
  model=$("$source_dir/tools/fetch_model.sh")
fi
export INFERD_TEST_MODEL=$model
if [ "$offline" = 1 ]; then
  # Without that data the tests that need it are skipped, and say so.
  peer_models=$("$source_dir/tools/fetch_peer_models.sh" --offline) || export INFERD_TESTS_OFFLINE=1
else
  peer_models=$("$source_dir/tools/fetch_peer_models.sh")
fi
if [ -n "$peer_models" ]; then export INFERD_PEER_MODELS=$peer_models; fi

# One line a stage for the summary; totals over all stages.
summary=()
tests_total=0
tests_failed=0

# count_failure NAME: what fails before a test can run counts as one failed test.
count_failure() {
  summary+=("$1: FAILED")
  tests_total=$((tests_total + 1))
  tests_failed=$((tests_failed + 1))
}

# Prints those of the named targets that the configured preset has.
targets_of() {
  local preset=$1 target known
  shift
  known=$(ninja -C "$source_dir/build/$preset" -t targets all 2>/dev/null | sed -n 's/: phony$//p')
  for target in "$@"; do
    if grep -qx "$target" <<<"$known"; then echo "$target"; fi
  done
}

# stage PRESET WORDS TEST_REGEX [target...]: configures, builds (all, or those of the targets that there
# are) and runs the tests of that name.
stage() {
  local preset=$1 words=$2 regex=$3 log started counts failed total skipped targets
  shift 3
  started=$SECONDS
  say "$words (preset $preset): building"
  # In a subshell, so that a failure ends this stage and not the script.
  if ! (
    configure "$preset" -DINFERD_TESTS=ON
    mapfile -t targets < <(targets_of "$preset" "$@")
    build "$preset" "${targets[@]}"
  ); then
    count_failure "$words (build)"
    return
  fi
  say "$words (preset $preset): testing"
  log=$(mktemp)
  (cd "$source_dir/build/$preset" &&
    ctest --output-on-failure --no-tests=error -j "$(nproc)" -R "$regex" 2>&1) | tee "$log" || true
  counts=$(sed -n 's/^[0-9]*% tests passed, \([0-9]*\) tests failed out of \([0-9]*\)$/\1 \2/p' "$log")
  # ctest counts a test that could not run here among the passed ones.
  skipped=$(sed -n 's/^.*[0-9] - \([a-z0-9_.]*\) (Skipped)$/\1/p' "$log" | tr '\n' ' ')
  rm -f "$log"
  if [ -z "$counts" ]; then
    count_failure "$words (no test ran)"
    return
  fi
  read -r failed total <<<"$counts"
  total=$((total - $(wc -w <<<"$skipped")))
  tests_total=$((tests_total + total))
  tests_failed=$((tests_failed + failed))
  summary+=("$words: $((total - failed)) of $total passed, $((SECONDS - started)) s")
  # A program that left single tests out passes as a whole, so each of those is named.
  while read -r single; do
    [ -z "$single" ] || summary+=("  left out within a passed program: $single")
  done < <(sed -n -e 's/^\[  SKIPPED \] \([^ ]*\) (.*/\1/p' \
    -e "s/^\([a-z_]*\) (\(.*\)) \.\.\. skipped '\(.*\)'$/\2: \3/p" \
    "$source_dir/build/$preset/Testing/Temporary/LastTest.log" | sort -u)
  if [ -n "$skipped" ]; then
    summary+=("  skipped: $skipped" "$(sed -n 's/^SKIPPED: /    /p' \
      "$source_dir/build/$preset/Testing/Temporary/LastTest.log")")
  fi
}

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

stage release "Release build" "$tests"
# The sanitizers' builds and tests take about two and a half times as long as all before them.
if [ "$fast" = 0 ] && [ "$within_s" != 0 ] && [ $((SECONDS * 7 / 2)) -gt "$within_s" ]; then
  summary+=("The sanitizers: left out, since this machine is too slow today to end in $((within_s / 60)) minutes")
  fast=1
fi
if [ "$fast" = 0 ]; then
  # A few of the simulator's seeds: each walks every invariant, and all of them ran above.
  export INFERD_SIM_SEEDS=${INFERD_SIM_SEEDS:-100}
  units='base|client_lib|daemon|engine|formats|ipc|ipc_sleep|memory|mutator|scheduler|text|vocabularies'
  mapfile -t fuzz_targets < <(printf '%s\n' "$source_dir"/tests/fuzz/*_fuzz.cpp | sed 's#.*/\(.*\)\.cpp$#inferd_\1#')
  mapfile -t unit_targets < <(tr '|' '\n' <<<"$units" | sed 's/.*/inferd_&_test/')
  stage asan-ubsan "Under address and undefined-behaviour sanitizers, and fuzz targets" \
    "^(unit\\.($units)|sim|fuzz\\..*|integration\\.(first_answers|wrong_inputs|dying_clients))\$" \
    inferd inferctl inferd_sim_test "${unit_targets[@]}" "${fuzz_targets[@]}"
  # Under the thread sanitizer a model is slow, and threads take the same turns over one of no size.
  mkdir -p "$source_dir/build/tsan"
  export INFERD_TEST_MODEL=$source_dir/build/tsan/tiny.gguf
  "$source_dir/build/release/bin/inferd-bench" make-model --type q8_0 --context 4096 \
    --output "$INFERD_TEST_MODEL" >&2 || count_failure "Making a small model"
  stage tsan "Threads under the thread sanitizer" \
    '^(unit\.(ipc|ipc_sleep|client_lib|daemon|engine)|integration\.dying_clients)$' \
    inferd inferctl inferd_ipc_test inferd_client_lib_test inferd_daemon_test inferd_engine_test
fi

{
  echo
  say "Summary"
  printf '  %s\n' "${summary[@]}"
  passed=$((tests_total - tests_failed))
  echo "$((tests_total > 0 ? 100 * passed / tests_total : 0))% tests passed, $tests_failed tests failed out of $tests_total"
}
[ "$tests_failed" = 0 ] && [ "$tests_total" -gt 0 ]
