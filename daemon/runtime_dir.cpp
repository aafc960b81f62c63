#include "daemon/runtime_dir.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace inferd::daemon {

namespace {

constexpr const char* kLockName = "inferd.lock";
constexpr int kBacklog = 128;

// "cannot make …: Permission denied; choose …".
Error system_error(const std::string& what, int error, const std::string& advice = "") {
  const std::string said = what + ": " + std::strerror(error) + (advice.empty() ? "" : "; " + advice);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return Error(ErrorCode::kPermissionDenied, said);
  }
  if (error == ENOENT) return Error(ErrorCode::kNotFound, said);
  return Error(ErrorCode::kIo, said);
}

constexpr const char* kChooseAnother =
    "choose a directory that this user may write, with --runtime-dir or [daemon] runtime_dir";

std::string user_name() {
  const ::passwd* entry = ::getpwuid(::geteuid());
  return entry != nullptr ? entry->pw_name : std::to_string(::geteuid());
}

mode_t directory_mode(const std::string& access) {
  return access == "user" ? 0700 : access == "group" ? 0750 : 0755;
}
mode_t socket_mode(const std::string& access) {
  return access == "user" ? 0600 : access == "group" ? 0660 : 0666;
}

Result<gid_t> find_group(const std::string& name) {
  errno = 0;
  const ::group* entry = ::getgrnam(name.c_str());
  if (entry != nullptr) return entry->gr_gid;
  return Error(ErrorCode::kNotFound,
               "there is no group '" + name + "'; create it (systemd-sysusers does), set [daemon] "
               "group to another, or set [daemon] access to \"user\"");
}

// The pid that the holder of the lock wrote into it, for people.
std::string read_pid(int fd) {
  std::array<char, 32> text{};
  const ssize_t bytes = ::pread(fd, text.data(), text.size() - 1, 0);
  std::string pid(text.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0);
  while (!pid.empty() && pid.back() == '\n') pid.pop_back();
  return pid.empty() ? "unknown" : pid;
}

// Whether somebody listens on the socket at `path`.
bool somebody_listens(const sockaddr_un& address, int type) {
  const UniqueFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return true;
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return true;
  }
  // EPROTOTYPE: it lives, but is of another type. EAGAIN: it lives, its backlog is full.
  return errno != ECONNREFUSED && errno != ENOENT;
}

}  // namespace

Result<RuntimeDir> RuntimeDir::open(const RuntimeDirOptions& options) {
  RuntimeDir dir(options);
  INFERD_TRY(dir.prepare_directory());
  INFERD_TRY(dir.take_lock());
  return dir;
}

RuntimeDir::RuntimeDir(RuntimeDir&& other) noexcept
    : options_(std::move(other.options_)), lock_(std::move(other.lock_)),
      made_(std::move(other.made_)) {
  other.made_.clear();
}

RuntimeDir::~RuntimeDir() {
  for (const std::string& path : made_) ::unlink(path.c_str());
}

Result<void> RuntimeDir::prepare_directory() const {
  const std::string& path = options_.path;
  if (::mkdir(path.c_str(), directory_mode(options_.access)) == 0) {
    // The umask may have taken bits away.
    if (::chmod(path.c_str(), directory_mode(options_.access)) != 0) {
      return system_error("cannot set the mode of the runtime directory " + path, errno);
    }
    if (options_.access == "group") {
      INFERD_ASSIGN(const gid_t group, find_group(options_.group));
      if (::chown(path.c_str(), static_cast<uid_t>(-1), group) != 0) {
        return system_error("cannot give the runtime directory " + path + " to the group '" +
                                options_.group + "'", errno);
      }
    }
    return {};
  }
  if (errno == ENOENT) {
    return Error(ErrorCode::kNotFound,
                 "cannot make the runtime directory " + path +
                     ": its parent directory does not exist; make that, or choose another with "
                     "--runtime-dir or [daemon] runtime_dir");
  }
  if (errno != EEXIST) {
    return system_error("cannot make the runtime directory " + path, errno, kChooseAnother);
  }
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return system_error(path, errno);
  if (!S_ISDIR(status.st_mode)) {
    return Error(ErrorCode::kInvalidArgument,
                 "the runtime directory " + path + " is not a directory; remove it, or choose "
                 "another with --runtime-dir or [daemon] runtime_dir");
  }
  const bool foreign = status.st_uid != ::geteuid() && status.st_uid != 0;
  const bool open_to_all = (status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0;
  if (foreign || open_to_all) {
    return Error(ErrorCode::kPermissionDenied,
                 "the runtime directory " + path + " belongs to another user or can be written by "
                 "everyone, who could then replace the daemon's sockets; choose another with "
                 "--runtime-dir or [daemon] runtime_dir");
  }
  return {};
}

Result<void> RuntimeDir::take_lock() {
  const std::string path = socket_path(kLockName);
  for (;;) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!fd) {
      const int error = errno;
      return system_error("cannot open the lock file " + path, error,
                          "the runtime directory must belong to user " + user_name() +
                              " (systemd-tmpfiles --create makes that of the system service)");
    }
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) return system_error("cannot lock " + path, errno);
      return Error(ErrorCode::kUnavailable, "another inferd (pid " + read_pid(fd.get()) +
                                                ") serves " + options_.path +
                                                "; stop it, or choose another runtime_dir");
    }
    // Its former holder may have removed the file between our open() and flock().
    struct stat ours = {};
    struct stat present = {};
    if (::fstat(fd.get(), &ours) != 0 || ::stat(path.c_str(), &present) != 0 ||
        ours.st_ino != present.st_ino || ours.st_dev != present.st_dev) {
      continue;
    }
    const std::string pid = std::to_string(::getpid()) + "\n";
    if (::ftruncate(fd.get(), 0) != 0 ||
        ::pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
      return system_error("cannot write the lock file " + path, errno);
    }
    lock_ = std::move(fd);
    made_.push_back(path);
    return {};
  }
}

Result<UniqueFd> RuntimeDir::listen_clients() {
  return listen_at_name(kClientSocketName, SOCK_SEQPACKET);
}
Result<UniqueFd> RuntimeDir::listen_control() {
  return listen_at_name(kControlSocketName, SOCK_STREAM);
}

Result<UniqueFd> RuntimeDir::listen_at_name(const char* name, int type) {
  const std::string path = socket_path(name);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(ErrorCode::kInvalidArgument, "the socket path " + path + " is too long");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  struct stat status = {};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return Error(ErrorCode::kInvalidArgument, path + " exists and is no socket; remove it");
    }
    if (somebody_listens(address, type)) {
      return Error(ErrorCode::kUnavailable, "another process listens on " + path +
                                                "; stop it, or choose another runtime_dir");
    }
    if (::unlink(path.c_str()) != 0) return system_error("cannot replace " + path, errno);
  }
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error("cannot create a socket", errno);
  // Nobody may connect before the mode is what it should be.
  const mode_t umask_before = ::umask(0177);
  const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int bind_error = errno;
  ::umask(umask_before);
  if (bound != 0) return system_error("cannot create the socket " + path, bind_error);
  made_.push_back(path);
  if (::listen(fd.get(), kBacklog) != 0) return errno_error("cannot listen on " + path, errno);
  INFERD_TRY(set_access(path));
  return fd;
}

Result<void> RuntimeDir::set_access(const std::string& path) const {
  if (options_.access == "group") {
    INFERD_ASSIGN(const gid_t group, find_group(options_.group));
    if (::chown(path.c_str(), static_cast<uid_t>(-1), group) != 0) {
      return system_error("cannot give " + path + " to the group '" + options_.group + "'", errno);
    }
  }
  if (::chmod(path.c_str(), socket_mode(options_.access)) != 0) {
    return system_error("cannot set the mode of " + path, errno);
  }
  return {};
}

Result<ActivatedSockets> take_activated_sockets() {
  char** names = nullptr;
  const int count = ::sd_listen_fds_with_names(1, &names);
  if (count < 0) return errno_error("cannot take the service manager's sockets", -count);
  ActivatedSockets sockets;
  std::string complaint;
  for (int i = 0; i < count; ++i) {
    UniqueFd fd(SD_LISTEN_FDS_START + i);
    const std::string name = names[i];
    std::free(names[i]);
    const bool clients = name == kClientActivationName;
    if (!clients && name != kControlActivationName) {
      complaint = "the service manager passed a socket named '" + name + "'; expected \"" +
                  kClientActivationName + "\" and \"" + kControlActivationName + "\"";
      continue;
    }
    if (::sd_is_socket_unix(fd.get(), clients ? SOCK_SEQPACKET : SOCK_STREAM, 1, nullptr, 0) <= 0) {
      complaint = "the service manager's socket '" + name + "' is not a listening Unix socket of " +
                  (clients ? "type SOCK_SEQPACKET" : "type SOCK_STREAM");
      continue;
    }
    if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) {
      complaint = "cannot make the socket '" + name + "' non-blocking";
      continue;
    }
    (clients ? sockets.clients : sockets.control) = std::move(fd);
  }
  std::free(names);
  if (!complaint.empty()) return Error(ErrorCode::kInvalidArgument, complaint);
  return sockets;
}

}  // namespace inferd::daemon
