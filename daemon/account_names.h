// Users and groups as an administrator writes them, by name or by number.
// Owner: daemon, at start. Control thread: the system's tables are looked up, which may block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace inferd::daemon {

// The largest id of a user or group; the number after it means "none" to the kernel.
inline constexpr int64_t kAccountIdMax = 4'294'967'294;

// The number of a user, of a group; nothing if the system has none of that name. A whole decimal number
// stands for itself, for names never are.
std::optional<uint32_t> user_number(const std::string& name);
std::optional<uint32_t> group_number(const std::string& name);

}  // namespace inferd::daemon
