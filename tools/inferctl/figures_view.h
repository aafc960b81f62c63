// What top and vmstat show of the daemon's replies, as text.
// Owner: inferctl. Pure functions, one thread. Must not know sockets or terminals.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace inferd::inferctl {

// Tables of users and sessions, who was served most in front, below lines of pressure in the form
// of the kernel's /proc/pressure. `before` is an earlier reply to Top, of `seconds` ago, for the
// rates, by which rows are sorted then; null, and the sum since the daemon's start counts.
std::string top_text(const nlohmann::ordered_json& reply, const nlohmann::ordered_json& before,
                     double seconds);

// The head of vmstat's columns, and a line of them: counts as they are, and rates since `before`, a
// reply to Vmstat of `seconds` ago.
std::string vmstat_head();
std::string vmstat_line(const nlohmann::ordered_json& reply, const nlohmann::ordered_json& before,
                        double seconds);

}  // namespace inferd::inferctl
