// The C interface of connections, models and text: argument checks and conversions around
// Connection and ModelText.
#include "client_lib/include/inferd/inferd.h"

#include <errno.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "client_lib/c_helpers.h"

using namespace inferd::client_lib;
using inferd::Error;
using inferd::ErrorCode;
using inferd::Result;
namespace ipc = inferd::ipc;

static_assert(INFERD_VERSION_MISMATCH == static_cast<int>(ErrorCode::kVersionMismatch));
static_assert(INFERD_INTERNAL == static_cast<int>(ErrorCode::kInternal));

namespace {

constexpr uint32_t kTimeoutDefaultMs = 5000;

// Of one of the models that the daemon of this connection offers.
void fill_model_info(const ipc::ModelInfo& model, const Connection& connection,
                     inferd_model_info* info) {
  const bool in_use = model.name == connection.welcome().model.name;
  const bool has_template =
      in_use ? connection.text().has_chat_template() : model.has_chat_template;
  info->name = model.name.c_str();
  info->architecture = model.architecture.c_str();
  info->quantization = model.quantization.c_str();
  info->numerics_id = model.numerics_id.c_str();
  info->parameters = model.parameters;
  info->vocabulary = model.vocabulary;
  info->context_tokens = model.context_tokens;
  info->bos_token = model.bos_token;
  info->eos_token = model.eos_token;
  info->has_chat_template = has_template ? 1 : 0;
  info->in_use = in_use ? 1 : 0;
}

Result<void> check_ids_out(int32_t* const* ids, const size_t* count) {
  if (ids != nullptr && count != nullptr) return {};
  return invalid("the ids and the count to fill must not be NULL");
}

Result<void> hand_out_ids(const std::vector<int32_t>& found, int32_t** ids, size_t* count) {
  *ids = copy_out(found.data(), found.size());
  *count = found.size();
  return {};
}

}  // namespace

extern "C" {

const char* inferd_version(void) noexcept { return INFERD_VERSION; }

inferd_status inferd_error_status(const inferd_error* error) noexcept {
  return error == nullptr ? INFERD_OK : error->status;
}
const char* inferd_error_message(const inferd_error* error) noexcept {
  return error == nullptr ? "" : error->message.c_str();
}
void inferd_error_free(inferd_error* error) noexcept {
  if (error != out_of_memory()) delete error;
}
const char* inferd_status_name(inferd_status status) noexcept {
  return inferd::error_code_name(static_cast<ErrorCode>(status)).data();
}

void inferd_connect_options_init_sized(inferd_connect_options* options, size_t bytes) noexcept {
  prepare(options, bytes);
}

inferd_status inferd_connect(const inferd_connect_options* options, inferd_connection** connection,
                             inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (connection == nullptr) return invalid("the connection to fill is NULL");
    *connection = nullptr;
    inferd_connect_options chosen;
    inferd_connect_options_init(&chosen);
    if (options != nullptr) {
      constexpr size_t kFirstBytes = offsetof(inferd_connect_options, cache_domain);
      INFERD_TRY(read_struct(options, kFirstBytes, "inferd_connect_options", chosen));
    }
    ConnectOptions inner;
    if (chosen.socket_path != nullptr) inner.socket_path = chosen.socket_path;
    if (chosen.model != nullptr) inner.model = chosen.model;
    inner.client_name =
        chosen.client_name != nullptr ? chosen.client_name : program_invocation_short_name;
    const uint32_t timeout_ms = chosen.timeout_ms == 0 ? kTimeoutDefaultMs : chosen.timeout_ms;
    inner.timeout_ms = static_cast<int>(std::min<uint32_t>(timeout_ms, INT32_MAX));
    inner.spin_us = chosen.spin_us;
    if (chosen.cache_domain != nullptr) inner.cache_domain = chosen.cache_domain;
    INFERD_ASSIGN(auto opened, Connection::open(inner));
    *connection = new inferd_connection{std::move(opened)};
    return {};
  });
}

inferd_status inferd_reconnect(const inferd_connection* lost, uint32_t timeout_ms,
                               inferd_connection** connection, inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (connection == nullptr) return invalid("the connection to fill is NULL");
    *connection = nullptr;
    INFERD_TRY(check_usable(lost));
    const int patience_ms = static_cast<int>(std::min<uint32_t>(timeout_ms, INT32_MAX));
    INFERD_ASSIGN(auto opened, lost->impl->open_again(patience_ms));
    *connection = new inferd_connection{std::move(opened)};
    return {};
  });
}

void inferd_disconnect(inferd_connection* connection) noexcept { delete connection; }

inferd_status inferd_get_model_info(const inferd_connection* connection, inferd_model_info* info,
                                    inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    INFERD_TRY(check_handle(connection));
    INFERD_TRY(check_output(info, sizeof(*info), "inferd_model_info"));
    fill_model_info(connection->impl->welcome().model, *connection->impl, info);
    return {};
  });
}

inferd_status inferd_get_model_at(const inferd_connection* connection, size_t index,
                                  inferd_model_info* info, inferd_error** error) noexcept {
  bool beyond = false;
  const inferd_status status = guarded(error, [&]() -> Result<void> {
    INFERD_TRY(check_handle(connection));
    INFERD_TRY(check_output(info, sizeof(*info), "inferd_model_info"));
    const std::vector<ipc::ModelInfo>& models = connection->impl->welcome().models;
    beyond = index >= models.size();
    if (!beyond) fill_model_info(models[index], *connection->impl, info);
    return {};
  });
  return beyond ? INFERD_NOT_FOUND : status;
}

int inferd_connection_fd(const inferd_connection* connection) noexcept {
  return check_usable(connection).ok() ? connection->impl->fd() : -1;
}
void inferd_connection_clear(inferd_connection* connection) noexcept {
  if (check_usable(connection).ok()) connection->impl->clear();
}

inferd_status inferd_tokenize(const inferd_connection* connection, const char* text,
                              size_t text_bytes, uint32_t flags, int32_t** ids, size_t* count,
                              inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    INFERD_TRY(check_handle(connection));
    INFERD_TRY(check_ids_out(ids, count));
    if (text == nullptr && text_bytes > 0) return invalid("text is NULL");
    if ((flags & ~(INFERD_TOKENIZE_SPECIAL | INFERD_TOKENIZE_BOS)) != 0) {
      return invalid("flags has bits that do not exist");
    }
    INFERD_ASSIGN(const auto found, connection->impl->text().tokenize(
                                        {text, text_bytes}, (flags & INFERD_TOKENIZE_SPECIAL) != 0,
                                        (flags & INFERD_TOKENIZE_BOS) != 0));
    return hand_out_ids(found, ids, count);
  });
}

inferd_status inferd_detokenize(const inferd_connection* connection, const int32_t* ids,
                                size_t count, int special, char** text, size_t* text_bytes,
                                inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    INFERD_TRY(check_handle(connection));
    if (text == nullptr) return invalid("the text to fill is NULL");
    if (ids == nullptr && count > 0) return invalid("ids is NULL");
    const std::string found = connection->impl->text().detokenize({ids, count}, special != 0);
    *text = copy_out(found.c_str(), found.size() + 1);
    if (text_bytes != nullptr) *text_bytes = found.size();
    return {};
  });
}

inferd_status inferd_render_chat(const inferd_connection* connection, const char* chat_json,
                                 size_t chat_json_bytes, int32_t** ids, size_t* count,
                                 inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    INFERD_TRY(check_handle(connection));
    INFERD_TRY(check_ids_out(ids, count));
    if (chat_json == nullptr) return invalid("chat_json is NULL");
    INFERD_ASSIGN(const auto found,
                  connection->impl->text().render_chat({chat_json, chat_json_bytes}));
    return hand_out_ids(found, ids, count);
  });
}

void inferd_free(void* memory) noexcept { std::free(memory); }

}  // extern "C"
