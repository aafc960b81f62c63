// The handshake messages, both ends: no length is believed, and what is accepted survives encoding.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "ipc/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace inferd::ipc;
  const auto message = std::as_bytes(std::span(data, bytes));
  if (const auto hello = decode_hello(message); hello.ok()) {
    INFERD_CHECK(hello->model_name.size() <= kNameBytesMax);
    const auto again = decode_hello(encode_hello(*hello));
    INFERD_CHECK(again.ok() && again->client_name == hello->client_name &&
                 again->cache_domain == hello->cache_domain);
    const auto features = agree_features(*hello, kFeatures, 0);
    INFERD_CHECK(!features.ok() || (*features & ~kFeatures) == 0);
  }
  if (const auto welcome = decode_answer(message); welcome.ok()) {
    INFERD_CHECK(welcome->geometry.valid());
    const auto again = decode_answer(encode_welcome(*welcome));
    INFERD_CHECK(again.ok() && again->models.size() == welcome->models.size());
  }
  return 0;
}
