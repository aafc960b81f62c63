#include "tools/inferctl/connection.h"

#include <iostream>

namespace inferd::inferctl {

namespace {

// Someone who waits for longer wants to know why.
constexpr uint32_t kQuietWaitMs = 3'000;
// A large model on a slow disk takes minutes to load.
constexpr uint32_t kLoadingWaitMs = 15 * 60 * 1'000;

Result<Connection> connect_with(const inferd_connect_options& options) {
  inferd_connection* connection = nullptr;
  inferd_error* error = nullptr;
  const inferd_status status = inferd_connect(&options, &connection, &error);
  if (status != INFERD_OK) return take_error(status, error);
  return Connection(connection);
}

}  // namespace

Error take_error(inferd_status status, inferd_error* error) {
  INFERD_CHECK(status != INFERD_OK);
  std::string sentence =
      error != nullptr ? inferd_error_message(error) : inferd_status_name(status);
  inferd_error_free(error);
  return Error(static_cast<ErrorCode>(status), std::move(sentence));
}

Result<Connection> connect_client(const Arguments& arguments, const std::string& model) {
  const std::string socket = arguments.text("socket").value_or("");
  inferd_connect_options options;
  inferd_connect_options_init(&options);
  if (!socket.empty()) options.socket_path = socket.c_str();
  options.model = model.c_str();
  options.client_name = "inferctl";
  const std::string domain = arguments.text("cache-domain").value_or("");
  options.cache_domain = domain.c_str();
  options.timeout_ms = kQuietWaitMs;
  Result<Connection> connected = connect_with(options);
  if (connected.ok() || connected.error().code() != ErrorCode::kTimedOut) return connected;
  // systemd holds the socket open while the daemon that it starts for us reads its model.
  std::cerr << "inferctl: waiting for the daemon; it may be loading its model (Ctrl-C gives up)\n";
  options.timeout_ms = kLoadingWaitMs;
  return connect_with(options);
}

Result<inferd_model_info> model_info(const Connection& connection) {
  inferd_model_info info{};
  info.struct_bytes = sizeof info;
  inferd_error* error = nullptr;
  const inferd_status status = inferd_get_model_info(connection.get(), &info, &error);
  if (status != INFERD_OK) return take_error(status, error);
  return info;
}

Result<std::vector<int32_t>> tokenize(const Connection& connection, const std::string& text,
                                      uint32_t flags) {
  int32_t* ids = nullptr;
  size_t count = 0;
  inferd_error* error = nullptr;
  const inferd_status status =
      inferd_tokenize(connection.get(), text.data(), text.size(), flags, &ids, &count, &error);
  if (status != INFERD_OK) return take_error(status, error);
  std::vector<int32_t> copy(ids, ids + count);
  inferd_free(ids);
  return copy;
}

Result<std::string> detokenize(const Connection& connection, const std::vector<int32_t>& ids,
                               bool special) {
  char* text = nullptr;
  size_t text_bytes = 0;
  inferd_error* error = nullptr;
  const inferd_status status = inferd_detokenize(connection.get(), ids.data(), ids.size(), special,
                                                 &text, &text_bytes, &error);
  if (status != INFERD_OK) return take_error(status, error);
  std::string copy(text, text_bytes);
  inferd_free(text);
  return copy;
}

Result<std::string> render_chat(const Connection& connection, const std::string& chat_json) {
  int32_t* ids = nullptr;
  size_t count = 0;
  inferd_error* error = nullptr;
  const inferd_status status = inferd_render_chat(connection.get(), chat_json.data(),
                                                  chat_json.size(), &ids, &count, &error);
  if (status != INFERD_OK) return take_error(status, error);
  const std::vector<int32_t> copy(ids, ids + count);
  inferd_free(ids);
  return detokenize(connection, copy, true);
}

}  // namespace inferd::inferctl
