// Several answers to one prompt, in C++: the prompt is computed and kept once.
// usage: example-samples COUNT "PROMPT"
#include <algorithm>
#include <cstdlib>
#include <inferd/inferd.hpp>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: example-samples COUNT PROMPT\n";
    return 2;
  }
  inferd::client::Connection connection;
  inferd::client::Sampling sampling;
  sampling.temperature = 0.8f;
  sampling.max_tokens = 16;
  sampling.priority = INFERD_PRIORITY_BATCH;  // nobody waits for the single token
  const long count = std::strtol(argv[1], nullptr, 10);
  auto answers = connection.open_samples(inferd::client::Prompt::text(argv[2]), sampling,
                                         static_cast<size_t>(std::max(count, 1L)));
  for (size_t i = 0; i < answers.size(); ++i) {
    std::cout << i << ": " << answers[i].read_all() << '\n';
  }
  return 0;
} catch (const inferd::client::Error& error) {
  std::cerr << "example-samples: " << error.what() << '\n';
  return 1;
}
