#include "bench/ipc_socket_ends.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace inferd::bench {
namespace {

constexpr size_t kRecordBytes = 64;  // of a request, and of a record on the Unix socket
constexpr size_t kReadBytes = 65'536;

// What carries one token over HTTP, in the shape that servers of completions send.
constexpr std::string_view kEvent =
    "data: {\"id\":\"cmpl-0123456789\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,"
    "\"text\":\" token\",\"logprobs\":null,\"finish_reason\":null}]}\n\n";

void send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) _exit(1);  // the other process has ended, and so does the measurement
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

// Counts what comes by its length.
class MessageReader {
 public:
  MessageReader(int socket, size_t message_bytes)
      : socket_(socket), message_bytes_(message_bytes), buffer_(kReadBytes) {}

  uint32_t read(bool block) {
    ssize_t count;
    do {
      count = ::recv(socket_, buffer_.data(), buffer_.size(), block ? 0 : MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EAGAIN) return 0;
    if (count <= 0) _exit(1);
    partial_ += static_cast<size_t>(count);
    const size_t whole = partial_ / message_bytes_;
    partial_ %= message_bytes_;
    return static_cast<uint32_t>(whole);
  }

 private:
  int socket_;
  size_t message_bytes_;
  size_t partial_ = 0;  // bytes of a message that is not whole yet
  std::vector<char> buffer_;
};

class SocketDaemonEnd final : public DaemonEnd {
 public:
  SocketDaemonEnd(UniqueFd socket, std::string record)
      : socket_(std::move(socket)),
        requests_(socket_.get(), kRecordBytes),
        record_(std::move(record)) {}

  int fd() const override { return socket_.get(); }
  bool prepare_sleep() override { return true; }
  uint32_t take() override { return requests_.read(false); }
  bool send(TokenId token) override {
    std::memcpy(&record_[record_.size() / 2], &token, sizeof(token));
    send_all(socket_.get(), record_);
    return true;
  }

 private:
  UniqueFd socket_;
  MessageReader requests_;
  std::string record_;
};

class SocketClientEnd final : public ClientEnd {
 public:
  SocketClientEnd(UniqueFd socket, size_t record_bytes)
      : socket_(std::move(socket)),
        records_(socket_.get(), record_bytes),
        request_(kRecordBytes, 'r') {}

  void request() override { send_all(socket_.get(), request_); }
  uint32_t receive(int64_t) override {
    uint32_t count = 0;
    while (count == 0) count = records_.read(true);
    return count;
  }
  uint32_t poll() override { return records_.read(false); }

 private:
  UniqueFd socket_;
  MessageReader records_;
  std::string request_;
};

struct SocketPair {
  UniqueFd daemon;
  UniqueFd client;
};

Result<SocketPair> unix_pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return errno_error("cannot make a pair of Unix sockets", errno);
  }
  return SocketPair{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Result<SocketPair> tcp_pair() {
  const auto failed = [] { return errno_error("cannot connect over TCP to 127.0.0.1", errno); };
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SocketPair pair;
  pair.client = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!listener || !pair.client || bind(listener.get(), generic, bytes) != 0 ||
      listen(listener.get(), 1) != 0 || getsockname(listener.get(), generic, &bytes) != 0 ||
      connect(pair.client.get(), generic, bytes) != 0) {
    return failed();
  }
  pair.daemon = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!pair.daemon) return failed();
  for (const int fd : {pair.daemon.get(), pair.client.get()}) {
    const int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) return failed();
  }
  return pair;
}

}  // namespace

Result<Channel> open_socket_channel(Way way) {
  INFERD_CHECK(way != Way::kRing);
  INFERD_ASSIGN(SocketPair pair, way == Way::kUnix ? unix_pair() : tcp_pair());
  const std::string record(way == Way::kUnix ? std::string(kRecordBytes, 'r') : kEvent);
  Channel channel;
  channel.daemon = std::make_unique<SocketDaemonEnd>(std::move(pair.daemon), record);
  channel.client = std::make_unique<SocketClientEnd>(std::move(pair.client), record.size());
  return channel;
}

}  // namespace inferd::bench
