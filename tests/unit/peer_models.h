// Where the templates and vocabularies of llama.cpp's source lie, with which tests compare.
// Owner: the tests. Any thread. Must not fetch anything: tools/fetch_peer_models.sh does.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace inferd {

// $INFERD_PEER_MODELS, or empty.
inline std::filesystem::path peer_models_folder() {
  const char* const folder = std::getenv("INFERD_PEER_MODELS");
  return folder != nullptr ? folder : "";
}

// Whether whoever runs the tests has said that they run without what would have to be fetched.
inline bool tests_are_offline() {
  const char* const offline = std::getenv("INFERD_TESTS_OFFLINE");
  return offline != nullptr && std::string_view(offline) == "1";
}

inline constexpr char kHowToGetPeerModels[] =
    "set INFERD_PEER_MODELS to the folder that tools/fetch_peer_models.sh prints, or "
    "INFERD_TESTS_OFFLINE=1 to leave this test out";

}  // namespace inferd
