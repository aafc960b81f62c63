#include "daemon/account_names.h"

#include <grp.h>
#include <pwd.h>

#include <charconv>

namespace inferd::daemon {

namespace {

std::optional<uint32_t> number_of(const std::string& text) {
  uint32_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, number);
  if (status != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace

std::optional<uint32_t> user_number(const std::string& name) {
  if (const std::optional<uint32_t> number = number_of(name)) return number;
  const passwd* entry = ::getpwnam(name.c_str());
  if (entry == nullptr) return std::nullopt;
  return entry->pw_uid;
}

std::optional<uint32_t> group_number(const std::string& name) {
  if (const std::optional<uint32_t> number = number_of(name)) return number;
  const group* entry = ::getgrnam(name.c_str());
  if (entry == nullptr) return std::nullopt;
  return entry->gr_gid;
}

}  // namespace inferd::daemon
