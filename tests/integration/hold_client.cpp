// A client process that holds connections and does nothing with them, for idle_test.py.
// Owner: tests/integration. One thread.
//
// usage: inferd-test-hold SOCKET CONNECTIONS
//
// Opens so many connections, asks for one token through each, says "ready", and keeps them until
// its standard input ends.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <inferd/inferd.hpp>
#include <vector>

int main(int argc, char** argv) try {
  using namespace inferd::client;
  if (argc != 3) {
    std::fputs("usage: inferd-test-hold SOCKET CONNECTIONS\n", stderr);
    return 2;
  }
  ConnectOptions options;
  options.socket_path = argv[1];
  options.timeout = std::chrono::seconds(60);
  Sampling one_token;
  one_token.max_tokens = 1;
  std::vector<Connection> connections;
  for (long left = std::strtol(argv[2], nullptr, 10); left > 0; --left) {
    connections.emplace_back(options);
    connections.back().open(Prompt::ids({1, 2, 3}), one_token).read_all();
  }
  std::puts("ready");
  std::fflush(stdout);
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "inferd-test-hold: %s\n", error.what());
  return 1;
}
