// What the tests of Asio and of coroutines share: a server that repeats letters, and questions to it.
// Owner: tests/unit/client_lib.
#pragma once

#include <inferd/inferd.hpp>

#include "fake_server.h"

namespace inferd::test {

// Prompt: a letter, and how often the answer repeats it. 'h' goes on for ever, 'e' fails.
inline Script repeat(const ipc::Submission& s) {
  Script script;
  script.ids.assign(static_cast<size_t>(s.prompt[1]), s.prompt[0]);
  script.step_us = 20;
  script.hold = s.prompt[0] == 'h';
  if (s.prompt[0] == 'e') script.error = Error(ErrorCode::kResourceExhausted, "too long");
  return script;
}

inline client::ConnectOptions options_for(const FakeServer& server) {
  client::ConnectOptions options;
  options.socket_path = server.path();
  return options;
}

inline client::Sequence ask(client::Connection& connection, char letter, int32_t count) {
  return connection.open(client::Prompt::ids({letter, count}));
}

}  // namespace inferd::test
