// A folder that goes with all that is in it. Owner: tests/unit/daemon.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace inferd::daemon {

class TempDir {
 public:
  TempDir() : path_("/tmp/inferd-unit-XXXXXX") { EXPECT_NE(::mkdtemp(path_.data()), nullptr); }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

}  // namespace inferd::daemon
