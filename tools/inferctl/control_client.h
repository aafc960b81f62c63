// The daemon's control socket: one Varlink call at a time.
// Owner: inferctl. One thread. Knows the wire form of a call, not what any method means.
// Source of the wire form: the Varlink protocol (JSON messages, each ended by a NUL byte).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tools/inferctl/arguments.h"

namespace inferd::inferctl {

// Where the control socket is: --control-socket, beside --socket, $INFERD_CONTROL_SOCKET, beside
// $INFERD_SOCKET, $XDG_RUNTIME_DIR/inferd/, /run/inferd/; the last two only where a socket exists.
std::string control_socket_path(const Arguments& arguments);

// Calls org.inferd.Control.`method` and returns the reply's parameters. Blocks until the daemon has
// answered, as long as that takes.
// Errors: kUnavailable if no daemon is there, kPermissionDenied, kProtocol, and whatever the daemon
// replies, with its sentence.
Result<nlohmann::ordered_json> call_control(
    const Arguments& arguments, std::string_view method,
    nlohmann::ordered_json parameters = nlohmann::ordered_json::object());

// The same over a socket whose path is known. For tests.
Result<nlohmann::ordered_json> call_control_at(const std::string& path, std::string_view method,
                                               nlohmann::ordered_json parameters);

}  // namespace inferd::inferctl
