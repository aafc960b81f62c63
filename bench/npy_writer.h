// Writes a matrix of floats as a NumPy file, row by row.
// Owner: bench. One thread. Must not know what the rows mean.
// Source of the format: NumPy Enhancement Proposal 1, version 1.0 of the format.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace inferd::bench {

class NpyWriter {
 public:
  // Creates (or replaces) `path` for an array of shape [rows, columns], '<f4'. Errors: kIo.
  static Result<NpyWriter> create(const std::string& path, uint64_t rows, uint64_t columns);

  // Appends whole rows; values.size() is a multiple of the columns. Errors: kIo.
  Result<void> append(std::span<const float> values);
  // Flushes and closes; checks that all rows came. Errors: kIo.
  Result<void> finish();

 private:
  struct Close {
    void operator()(FILE* file) const noexcept { std::fclose(file); }
  };
  NpyWriter(FILE* file, std::string path, uint64_t values)
      : file_(file), path_(std::move(path)), values_left_(values) {}

  std::unique_ptr<FILE, Close> file_;
  std::string path_;
  uint64_t values_left_;
};

}  // namespace inferd::bench
