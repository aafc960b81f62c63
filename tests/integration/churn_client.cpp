// A client process for leak_test.py: opens sequences of many shapes, reads some to their end,
// cancels some in each state that a sequence can be in, and drops some handles while they run. It
// may be killed at any moment. Owner: tests/integration. One thread.
//
// usage: inferd-test-churn SOCKET SEED REQUESTS
//
// It writes one letter to standard output for each thing that happened, at once, so that whoever
// kills it knows what it had done: o opened, e ended by itself, c cancelled, d handle dropped.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <inferd/inferd.hpp>
#include <random>
#include <string>
#include <vector>

namespace {

using inferd::client::Connection;
using inferd::client::Event;
using inferd::client::Prompt;
using inferd::client::Sampling;
using inferd::client::Sequence;

constexpr size_t kTogether = 4;  // sequences that it keeps open at once

struct Open {
  Sequence sequence;
  bool cancel = false;  // ask for the end after `events`, and wait for it
  bool drop = false;    // close the handle after `events`
  int events = 0;
};

void say(char letter) {
  if (write(STDOUT_FILENO, &letter, 1) != 1) std::_Exit(3);
}

class Churn {
 public:
  Churn(Connection& connection, uint64_t seed)
      : connection_(connection), random_(seed), vocabulary_(connection.model().vocabulary) {}

  void open_one() {
    std::vector<int32_t> ids(1 + below(chance(0.1) ? 300 : 60));
    for (int32_t& id : ids) id = static_cast<int32_t>(below(vocabulary_));
    Open open{connection_.open(Prompt::ids(ids), sampling())};
    // Some do not end by themselves: it is cancelled, or its handle goes.
    if (endless_) {
      open.cancel = !chance(0.3);
      open.drop = !open.cancel;
      open.events = static_cast<int>(chance(0.3) ? 0 : below(12));
    }
    say('o');
    open_.push_back(std::move(open));
  }
  void finish_one() {
    const size_t index = below(open_.size());
    Open open = std::move(open_[index]);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
    for (int seen = 0;; ++seen) {
      if (open.cancel && seen == open.events) open.sequence.cancel();
      if (open.drop && seen == open.events) return say('d');
      if (!open.sequence.next()) break;
    }
    say(open.sequence.finish() == INFERD_FINISH_CANCELLED ? 'c' : 'e');
  }
  size_t open() const { return open_.size(); }

 private:
  uint64_t below(uint64_t bound) { return random_() % bound; }
  bool chance(double share) { return static_cast<double>(random_() % 1000) < share * 1000; }

  Sampling sampling() {
    endless_ = chance(0.4);
    Sampling sampling;
    if (!endless_) sampling.max_tokens = static_cast<uint32_t>(1 + below(30));
    sampling.ignore_eos = endless_;
    sampling.temperature = chance(0.5) ? 0.8f : 0.0f;
    sampling.seed = random_();
    sampling.logprobs = chance(0.3);
    sampling.top_logprobs = sampling.logprobs ? static_cast<uint32_t>(below(21)) : 0;
    if (!endless_ && chance(0.2)) sampling.stop = {"e", "th"};
    if (chance(0.1)) sampling.logit_bias = {{5, 2.0f}};
    return sampling;
  }

  Connection& connection_;
  std::mt19937_64 random_;
  const uint32_t vocabulary_;
  std::vector<Open> open_;
  bool endless_ = false;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::fputs("usage: inferd-test-churn SOCKET SEED REQUESTS\n", stderr);
    return 2;
  }
  inferd::client::ConnectOptions options;
  options.socket_path = argv[1];
  options.timeout = std::chrono::seconds(60);
  Connection connection(options);
  Churn churn(connection, std::strtoull(argv[2], nullptr, 10));
  for (long left = std::strtol(argv[3], nullptr, 10); left > 0; --left) {
    if (churn.open() == kTogether) churn.finish_one();
    churn.open_one();
  }
  while (churn.open() > 0) churn.finish_one();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "inferd-test-churn: %s\n", error.what());
  return 1;
}
