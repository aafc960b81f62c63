#!/bin/bash
# Compiles base, formats and engine for aarch64 and runs the kernels' tests there under qemu: the portable kernels
# must give the bits that tests/unit/engine/golden_bits_test.cpp has from x86-64. Not part of the test run; needs
# the Debian packages g++-aarch64-linux-gnu, qemu-user, libgtest-dev and libxxhash-dev.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v "$program" >/dev/null ||
    fail "$program is missing." "Install it with: apt-get install g++-aarch64-linux-gnu qemu-user"
done

build=$source_dir/build/aarch64
mkdir -p "$build/include"
# Headers that are the same everywhere; the rest of /usr/include is this machine's.
ln -sf /usr/include/xxhash.h /usr/include/xxh3.h "$build/include/"
googletest=/usr/src/googletest
sources=("$source_dir"/{base,formats,engine/cpu,engine/models,engine/sampling}/*.cpp
  "$source_dir"/tests/unit/engine/{golden_bits,kernels,kernel_edges,isa,sampling_math}_test.cpp
  "$googletest/googletest/src/gtest-all.cc" "$googletest/googlemock/src/gmock-all.cc"
  "$googletest/googlemock/src/gmock_main.cc")
{
  echo "cxx = aarch64-linux-gnu-g++"
  echo "flags = -std=c++20 -O2 -Wall -Wextra -Wno-psabi -ffp-contract=off -fno-math-errno -DINFERD_VERSION='\"0\"' $
      -I$source_dir -I$build/include -I$googletest/googletest -I$googletest/googletest/include $
      -I$googletest/googlemock -I$googletest/googlemock/include"
  echo "rule compile"
  echo "  command = \$cxx \$flags -MD -MF \$out.d -c \$in -o \$out"
  echo "  depfile = \$out.d"
  echo "rule link"
  echo "  command = \$cxx -static \$in -o \$out"
  objects=()
  for source in "${sources[@]}"; do
    case "$source" in */kernels_avx*) continue ;; esac
    object=$build/$(tr / _ <<<"${source#/}").o
    objects+=("$object")
    echo "build $object: compile $source"
  done
  echo "build $build/engine_test: link ${objects[*]}"
} >"$build/build.ninja"
say "Compiling for aarch64"
ninja -C "$build"
say "Running under qemu"
qemu-aarch64 "$build/engine_test" --gtest_brief=1
