// ControlService: what is cached, and forgetting it.
#include <boost/asio/post.hpp>

#include <map>

#include "daemon/cache_domains.h"
#include "daemon/control_errors.h"
#include "daemon/control_service.h"
#include "daemon/step_loop.h"

namespace inferd::daemon {

void ControlService::cache_stat(const Call& call) {
  mailbox_.post([this, call](StepLoop& loop) {
    auto figures = std::make_shared<const std::vector<CacheDomainFigures>>(loop.cache_figures());
    boost::asio::post(io_, [this, call, figures] {
      const CacheDomain own = CacheDomains::of_user(call.caller);
      Json domains = Json::array();
      for (const CacheDomainFigures& one : *figures) {
        if (!call.privileged && one.domain != own) continue;
        domains.push_back({{"domain", host_.cache_domains().name_of(one.domain)},
                           {"pages", one.pages},
                           {"stored", one.stored}});
      }
      call.reply(encode_control_reply({{"domains", domains}}));
    });
  });
}

void ControlService::cache_flush(const Call& call) {
  const auto given = call.message.parameters.find("domain");
  std::optional<CacheDomain> domain;
  if (given != call.message.parameters.end() && !given->is_null()) {
    if (!given->is_string()) {
      call.reply(service_error("InvalidParameter", {{"parameter", "domain"}}));
      return;
    }
    domain = host_.cache_domains().find(given->get<std::string>());
    if (!domain) {
      call.reply(
          control_error(Error(ErrorCode::kNotFound,
                              "there is no cache domain of that name; inferctl cache stat lists "
                              "those with pages, as user:UID and shared:NAME")));
      return;
    }
  }
  const CacheDomain own = CacheDomains::of_user(call.caller);
  if (!call.privileged) {
    if (domain && *domain != own) {
      call.reply(
          control_error(Error(ErrorCode::kPermissionDenied,
                              "without privilege only one's own cached prefixes can be flushed, "
                              "user:" +
                                  std::to_string(call.caller.value))));
      return;
    }
    domain = own;
  }
  mailbox_.post([&io = io_, call, domain](StepLoop& loop) {
    std::string message = encode_control_reply({{"pages", loop.flush_cache(domain)}});
    boost::asio::post(io, [call, message = std::move(message)] { call.reply(message); });
  });
}

void ControlService::cache_pin(const Call& call) {
  const auto given = call.message.parameters.find("tokens");
  std::vector<TokenId> tokens;
  const bool is_list = given != call.message.parameters.end() && given->is_array();
  if (is_list) {
    for (const Json& token : *given) {
      const int64_t id = token.is_number_integer() ? token.get<int64_t>() : -1;
      if (id < 0 || id > INT32_MAX) break;
      tokens.push_back(static_cast<TokenId>(id));
    }
  }
  if (!is_list || tokens.size() != given->size()) {
    call.reply(service_error("InvalidParameter", {{"parameter", "tokens"}}));
    return;
  }
  mailbox_.post([&io = io_, call, tokens = std::move(tokens)](StepLoop& loop) {
    const Result<uint32_t> pages =
        loop.pin_cache(CacheDomains::of_user(call.caller), call.caller, tokens);
    std::string message =
        pages ? encode_control_reply({{"pages", *pages}}) : control_error(pages.error());
    boost::asio::post(io, [call, message = std::move(message)] { call.reply(message); });
  });
}

void ControlService::cache_unpin(const Call& call) {
  mailbox_.post([&io = io_, call](StepLoop& loop) {
    std::string message = encode_control_reply({{"pages", loop.unpin_cache(call.caller)}});
    boost::asio::post(io, [call, message = std::move(message)] { call.reply(message); });
  });
}

}  // namespace inferd::daemon
