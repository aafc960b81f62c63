// The client library's C handles with owners, and its errors as ours.
// Owner: inferctl. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "client_lib/include/inferd/inferd.h"
#include "tools/inferctl/arguments.h"

namespace inferd::inferctl {

struct DisconnectClient {
  void operator()(inferd_connection* connection) const noexcept { inferd_disconnect(connection); }
};
using Connection = std::unique_ptr<inferd_connection, DisconnectClient>;

struct CloseSequence {
  void operator()(inferd_sequence* sequence) const noexcept { inferd_close(sequence); }
};
using Sequence = std::unique_ptr<inferd_sequence, CloseSequence>;

// Takes the library's error object (frees it) as an Error.
Error take_error(inferd_status status, inferd_error* error);

// Connects to the daemon that --socket or the usual places name, and to `model` ("" for its first),
// with the cache domain of --cache-domain if the command has that option.
// Blocks while the daemon loads its model, and then says so on standard error.
Result<Connection> connect_client(const Arguments& arguments, const std::string& model);

// What the model on the other side is.
Result<inferd_model_info> model_info(const Connection& connection);

Result<std::vector<int32_t>> tokenize(const Connection& connection, const std::string& text,
                                      uint32_t flags);
Result<std::string> detokenize(const Connection& connection, const std::vector<int32_t>& ids,
                               bool special);
// The prompt text that the model's chat template makes of a request.
Result<std::string> render_chat(const Connection& connection, const std::string& chat_json);

}  // namespace inferd::inferctl
