#include "tools/inferctl/control_client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/unique_fd.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

// No reply of the daemon comes near this; beyond it the peer is not inferd.
constexpr size_t kReplyBytesMax = size_t{256} << 20;
constexpr std::string_view kInterface = "org.inferd.Control.";

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] != '\0' ? value : nullptr;
}

Result<UniqueFd> connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error(ErrorCode::kInvalidArgument,
                 "the socket path '" + path + "' is too long; a Unix socket's path has at most " +
                     std::to_string(sizeof address.sun_path - 1) + " bytes");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno_error("a socket could not be made", errno);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return fd;
  switch (errno) {
    case ENOENT:
    case ECONNREFUSED:
    case ENOTDIR:
      return Error(ErrorCode::kUnavailable,
                   "no inferd listens on " + path +
                       "; start one (systemctl start inferd, or inferd --model FILE.gguf "
                       "--runtime-dir DIR), or name its socket with --control-socket");
    case EACCES:
    case EPERM:
      return Error(ErrorCode::kPermissionDenied,
                   "you may not use " + path +
                       "; join the group that may ('sudo usermod -aG inferd $USER', then log in "
                       "again)");
    case EPROTOTYPE:
      return Error(ErrorCode::kInvalidArgument,
                   path +
                       " is not a control socket (it may be the one for clients); the control "
                       "socket is usually called control.sock");
    default:
      return errno_error("connecting to " + path + " failed", errno);
  }
}

Result<void> send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno_error("the daemon closed the control connection", errno);
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return {};
}

// One message without its NUL.
Result<std::string> receive_message(int fd) {
  std::string message;
  std::vector<char> buffer(size_t{64} << 10);
  for (;;) {
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("reading the daemon's reply failed", errno);
    if (got == 0) {
      return Error(ErrorCode::kUnavailable,
                   "the daemon closed the control connection before it replied; it may just be "
                   "ending, its log tells");
    }
    const auto end = buffer.begin() + got;
    const auto nul = std::find(buffer.begin(), end, '\0');
    message.append(buffer.begin(), nul);
    if (nul != end) return message;
    if (message.size() > kReplyBytesMax) {
      return Error(ErrorCode::kProtocol,
                   "the reply on the control socket does not end; is it inferd's?");
    }
  }
}

// A Varlink error reply in words: the daemon's own sentence where it sent one.
Error error_of_reply(const ordered_json& reply, std::string_view method) {
  const std::string name =
      reply.at("error").is_string() ? reply.at("error").get<std::string>() : "";
  std::string sentence;
  ErrorCode code = ErrorCode::kInternal;
  if (const auto parameters = reply.find("parameters");
      parameters != reply.end() && parameters->is_object()) {
    if (const auto message = parameters->find("message");
        message != parameters->end() && message->is_string()) {
      sentence = message->get<std::string>();
    }
  }
  if (name == "org.varlink.service.InvalidParameter") {
    code = ErrorCode::kInvalidArgument;
    sentence = "the daemon does not take this parameter of " + std::string(method) +
               "; daemon and inferctl may be of different versions";
  } else if (name == "org.varlink.service.MethodNotFound") {
    code = ErrorCode::kUnsupported;
    sentence = "this daemon does not know " + std::string(method) +
               "; daemon and inferctl are of different versions";
  } else if (name.ends_with(".PermissionDenied")) {
    code = ErrorCode::kPermissionDenied;
  } else if (name.ends_with(".InvalidArgument")) {
    code = ErrorCode::kInvalidArgument;
  } else if (name.ends_with(".Unavailable")) {
    code = ErrorCode::kUnavailable;
  } else if (name.ends_with(".NotFound")) {
    code = ErrorCode::kNotFound;
  }
  if (sentence.empty()) sentence = "the daemon answered with the error " + name;
  return Error(code, sentence);
}

}  // namespace

std::string control_socket_path(const Arguments& arguments) {
  constexpr std::string_view kName = "/control.sock";
  if (const auto path = arguments.text("control-socket")) return *path;
  if (const auto path = arguments.text("socket")) return folder_of(*path) + std::string(kName);
  if (const char* path = environment("INFERD_CONTROL_SOCKET")) return path;
  if (const char* path = environment("INFERD_SOCKET")) return folder_of(path) + std::string(kName);
  if (const char* folder = environment("XDG_RUNTIME_DIR")) {
    const std::string path = std::string(folder) + "/inferd" + std::string(kName);
    if (::access(path.c_str(), F_OK) == 0) return path;
  }
  return "/run/inferd" + std::string(kName);
}

Result<ordered_json> call_control_at(const std::string& path, std::string_view method,
                                     ordered_json parameters) {
  ordered_json call;
  call["method"] = std::string(kInterface) + std::string(method);
  call["parameters"] = std::move(parameters);
  INFERD_ASSIGN(const UniqueFd fd, connect_to(path));
  std::string wire = call.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  wire.push_back('\0');
  INFERD_TRY(send_all(fd.get(), wire));
  INFERD_ASSIGN(const std::string message, receive_message(fd.get()));
  ordered_json reply = ordered_json::parse(message, nullptr, false);
  if (!reply.is_object()) {
    return Error(ErrorCode::kProtocol, "what answers on " + path +
                                           " does not speak the control protocol; is it inferd's?");
  }
  if (reply.contains("error")) return error_of_reply(reply, method);
  const auto found = reply.find("parameters");
  if (found == reply.end()) return ordered_json::object();
  if (!found->is_object()) {
    return Error(ErrorCode::kProtocol,
                 "the daemon's reply on " + path + " has no object of parameters");
  }
  return ordered_json(std::move(*found));
}

Result<ordered_json> call_control(const Arguments& arguments, std::string_view method,
                                  ordered_json parameters) {
  return call_control_at(control_socket_path(arguments), method, std::move(parameters));
}

}  // namespace inferd::inferctl
