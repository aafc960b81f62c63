#include <cmath>
#include <cstdio>
#include <inferd/inferd.hpp>

int main() try {
  using namespace inferd::client;
  Connection connection;
  Sampling sampling;
  sampling.max_tokens = 5;
  sampling.logprobs = true;
  sampling.top_logprobs = 3;
  auto answer = connection.open(Prompt::text("The opposite of hot is"), sampling);
  for (const Event& event : answer) {
    for (size_t i = 0; i < event.ids.size(); ++i) {
      std::printf("%5.1f %%:", 100 * std::exp(event.logprobs[i].logprob));
      for (const inferd_logprob& other : event.alternatives(i)) {
        std::printf(" '%s'", connection.detokenize(std::span(&other.token, 1), true).c_str());
      }
      std::printf("\n");
    }
  }
  return 0;
} catch (const inferd::client::Error& error) {
  std::fprintf(stderr, "alternatives: %s\n", error.what());
  return 1;
}
