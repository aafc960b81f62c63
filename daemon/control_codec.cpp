#include "daemon/control_codec.h"

namespace inferd::daemon {

namespace {

// JSON nests this deep at most in a call; deeper is refused before anything walks it recursively.
constexpr size_t kDepthMax = 32;

std::string encode(const Json& message) {
  std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.push_back('\0');
  return text;
}

// Reads an optional boolean member; false if it is there and is something else.
bool read_flag(const Json& message, const char* name, bool& flag) {
  const auto member = message.find(name);
  if (member == message.end() || member->is_null()) return true;
  if (!member->is_boolean()) return false;
  flag = member->get<bool>();
  return true;
}

}  // namespace

Result<ControlCall> parse_control_call(std::string_view message) {
  bool too_deep = false;
  const auto watch_depth = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || static_cast<size_t>(depth) > kDepthMax;
    return !too_deep;  // drops what lies deeper
  };
  const Json parsed = Json::parse(message.begin(), message.end(), watch_depth, false);
  if (too_deep) return Error(ErrorCode::kProtocol, "the message is nested too deeply");
  if (parsed.is_discarded()) return Error(ErrorCode::kProtocol, "the message is not valid JSON");
  if (!parsed.is_object()) return Error(ErrorCode::kProtocol, "the message is not a JSON object");
  const auto method = parsed.find("method");
  if (method == parsed.end() || !method->is_string()) {
    return Error(ErrorCode::kProtocol, "the call has no member 'method' that is a string");
  }
  ControlCall call;
  const std::string& name = method->get_ref<const std::string&>();
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos || dot == 0 || dot + 1 == name.size()) {
    return Error(ErrorCode::kProtocol, "'method' is not of the form interface.Method");
  }
  call.interface = name.substr(0, dot);
  call.method = name.substr(dot + 1);
  const auto parameters = parsed.find("parameters");
  if (parameters != parsed.end() && !parameters->is_null()) {
    if (!parameters->is_object()) {
      return Error(ErrorCode::kProtocol, "'parameters' is not a JSON object");
    }
    call.parameters = *parameters;
  }
  bool upgrade = false;
  if (!read_flag(parsed, "oneway", call.oneway) || !read_flag(parsed, "more", call.more) ||
      !read_flag(parsed, "upgrade", upgrade)) {
    return Error(ErrorCode::kProtocol, "'oneway', 'more' and 'upgrade' are true or false");
  }
  if (upgrade) return Error(ErrorCode::kProtocol, "no method here upgrades the connection");
  return call;
}

std::string encode_control_reply(const Json& parameters) {
  return encode(Json{{"parameters", parameters}});
}

std::string encode_control_error(std::string_view name, const Json& parameters) {
  return encode(Json{{"error", std::string(name)}, {"parameters", parameters}});
}

bool ControlFramer::add(std::string_view bytes) {
  if (refused_) return false;
  if (start_ > 0) {
    buffer_.erase(0, start_);
    scanned_ -= start_;
    start_ = 0;
  }
  buffer_.append(bytes);
  // Only the message that is still open counts: whole ones before it are about to be taken.
  const size_t last_nul = buffer_.rfind('\0');
  const size_t open_bytes = last_nul == std::string::npos ? buffer_.size()
                                                          : buffer_.size() - last_nul - 1;
  refused_ = open_bytes > kControlMessageBytesMax;
  return !refused_;
}

std::optional<std::string> ControlFramer::next() {
  const size_t end = buffer_.find('\0', scanned_);
  if (end == std::string::npos) {
    scanned_ = buffer_.size();
    return std::nullopt;
  }
  std::string message = buffer_.substr(start_, end - start_);
  start_ = scanned_ = end + 1;
  return message;
}

}  // namespace inferd::daemon
