#include "client_lib/discovery.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace inferd::client_lib {
namespace {

class Discovery : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("INFERD_SOCKET");
    unsetenv("XDG_RUNTIME_DIR");
  }
  void TearDown() override { SetUp(); }
};

TEST_F(Discovery, OrderIsArgumentThenVariableThenUserThenSystem) {
  EXPECT_EQ(find_candidates(nullptr).paths, std::vector<std::string>{"/run/inferd/inferd.sock"});
  setenv("XDG_RUNTIME_DIR", "/run/user/1", 1);
  EXPECT_EQ(find_candidates("").paths, (std::vector<std::string>{"/run/user/1/inferd/inferd.sock",
                                                                 "/run/inferd/inferd.sock"}));
  setenv("INFERD_SOCKET", "/x.sock", 1);
  EXPECT_EQ(find_candidates(nullptr).paths, std::vector<std::string>{"/x.sock"});
  EXPECT_EQ(find_candidates("/y.sock").paths, std::vector<std::string>{"/y.sock"});
}

TEST_F(Discovery, ErrorNamesEveryPathAndSaysWhatToDo) {
  setenv("XDG_RUNTIME_DIR", "/nonexistent-xdg", 1);
  Candidates candidates = find_candidates(nullptr);
  candidates.paths.back() = "/nonexistent-run/inferd.sock";
  const auto result = connect_to_any(candidates, 10);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kUnavailable);
  const std::string& text = result.error().message();
  for (const char* part :
       {"/nonexistent-xdg/inferd/inferd.sock", "/nonexistent-run/inferd.sock", "No such file",
        "inferd --model FILE.gguf", "systemctl start inferd", "INFERD_SOCKET"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }
}

TEST_F(Discovery, WrongVariableIsToBeCorrected) {
  setenv("INFERD_SOCKET", "/nonexistent.sock", 1);
  const auto result = connect_to_any(find_candidates(nullptr), 10);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message().find("correct INFERD_SOCKET"), std::string::npos);
}

}  // namespace
}  // namespace inferd::client_lib
