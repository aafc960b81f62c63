// The Varlink wire protocol of the control socket: framing, calls, replies, errors. Pure.
// Owner: daemon. A ControlFramer belongs to one connection; the rest are pure functions. Any thread.
// Must not know methods or the daemon's state. Source: varlink.org, "Method Call" and "Errors".
//
// A message is one JSON object followed by a NUL byte. Bytes come from a client: whatever they are,
// they end in a call or in an error that can be sent back.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace inferd::daemon {

using Json = nlohmann::json;

// Longest call accepted; the longest that makes sense has some hundred bytes.
inline constexpr size_t kControlMessageBytesMax = 64 * 1024;

struct ControlCall {
  std::string interface;  // "org.inferd.Control"
  std::string method;     // "Status"
  Json parameters = Json::object();
  bool oneway = false;    // the caller wants no reply
  bool more = false;      // the caller would accept several replies; we always send one
};

// Reads one message without its NUL. Errors: kProtocol with a sentence on what is not Varlink about it.
Result<ControlCall> parse_control_call(std::string_view message);

// A reply with its NUL. Text that is no UTF-8 has its wrong bytes replaced.
std::string encode_control_reply(const Json& parameters);
// An error with its NUL; `name` in full: "org.varlink.service.MethodNotFound".
std::string encode_control_error(std::string_view name, const Json& parameters);

// Cuts a stream of bytes into messages.
class ControlFramer {
 public:
  // Adds bytes. False if a message is longer than kControlMessageBytesMax: the connection is to be
  // closed, and the framer stays refused.
  bool add(std::string_view bytes);
  // The next whole message, without its NUL.
  std::optional<std::string> next();
  size_t buffered_bytes() const { return buffer_.size() - start_; }

 private:
  std::string buffer_;
  size_t start_ = 0;    // of the first message not yet taken
  size_t scanned_ = 0;  // no NUL in [start_, scanned_)
  bool refused_ = false;
};

}  // namespace inferd::daemon
