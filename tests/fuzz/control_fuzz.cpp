// The control socket's bytes: any stream is cut into messages, and each ends in a call or an error.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "daemon/control_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferd::daemon;
  if (size == 0) return 0;
  // The first byte says how large the pieces are in which the rest arrives.
  const size_t piece = 1 + data[0];
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  ControlFramer framer;
  while (!rest.empty()) {
    if (!framer.add(rest.substr(0, piece))) return 0;
    rest.remove_prefix(std::min(piece, rest.size()));
    while (const auto message = framer.next()) {
      INFERD_CHECK(message->find('\0') == std::string::npos);
      const auto call = parse_control_call(*message);
      if (!call) {
        INFERD_CHECK(!call.error().message().empty());
        continue;
      }
      INFERD_CHECK(!call->interface.empty() && !call->method.empty());
      INFERD_CHECK(call->parameters.is_object());
      const std::string reply = encode_control_reply(call->parameters);
      INFERD_CHECK(reply.find('\0') == reply.size() - 1);
    }
    INFERD_CHECK(framer.buffered_bytes() <= kControlMessageBytesMax);
  }
  return 0;
}
