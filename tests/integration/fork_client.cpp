// A client process that forks a sequence in the middle of its answer, for fork_test.py.
// Owner: tests/integration. One thread.
//
// usage: inferd-test-fork SOCKET PROMPT_TOKENS READ FORKS MAX_TOKENS [no-store]
//
// Opens a sequence with so many prompt ids, reads READ tokens of its answer, then forks it FORKS
// times: the even ones with nothing added, the odd ones with ids of their own. Says "forked" and
// waits for a line, then reads everybody to the end and prints one line each: the cached tokens,
// the ids that the sequence began with, a bar, and its answer. The first line is the parent's.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <inferd/inferd.hpp>
#include <vector>

using namespace inferd::client;

namespace {

struct Branch {
  Sequence sequence;
  std::vector<int32_t> before;
  std::vector<int32_t> answer;
};

void print(Branch& branch) {
  while (const auto event = branch.sequence.next()) {
    branch.answer.insert(branch.answer.end(), event->ids.begin(), event->ids.end());
  }
  std::printf("%u", branch.sequence.usage().cached_tokens);
  for (const int32_t id : branch.before) std::printf(" %d", id);
  std::printf(" |");
  for (const int32_t id : branch.answer) std::printf(" %d", id);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 6) {
    std::fputs("usage: inferd-test-fork SOCKET PROMPT_TOKENS READ FORKS MAX_TOKENS [no-store]\n",
               stderr);
    return 2;
  }
  ConnectOptions options;
  options.socket_path = argv[1];
  options.timeout = std::chrono::seconds(60);
  Connection connection(options);
  std::vector<int32_t> prompt;
  for (int i = 0; i < std::atoi(argv[2]); ++i) prompt.push_back(3 + i * 7 % 250);
  Sampling sampling;
  sampling.max_tokens = static_cast<uint32_t>(std::atoi(argv[5]));
  sampling.ignore_eos = true;
  sampling.no_store = argc > 6 && std::strcmp(argv[6], "no-store") == 0;
  Branch parent{connection.open(Prompt::ids(prompt), sampling), prompt, {}};
  while (parent.answer.size() < static_cast<size_t>(std::atoi(argv[3]))) {
    const auto event = parent.sequence.next();
    if (!event) throw Error(INFERD_INTERNAL, "the answer ended before the fork");
    parent.answer.insert(parent.answer.end(), event->ids.begin(), event->ids.end());
  }
  std::vector<Branch> forks;
  for (int i = 0; i < std::atoi(argv[4]); ++i) {
    std::vector<int32_t> before = prompt;
    before.insert(before.end(), parent.answer.begin(), parent.answer.end());
    std::optional<Prompt> more;
    if (i % 2 == 1) {
      more = Prompt::ids({100 + i, 5});
      before.insert(before.end(), {100 + i, 5});
    }
    forks.push_back({parent.sequence.fork(sampling, more), std::move(before), {}});
  }
  std::puts("forked");
  std::fflush(stdout);
  std::getchar();
  print(parent);
  for (Branch& branch : forks) print(branch);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "inferd-test-fork: %s\n", error.what());
  return 1;
}
