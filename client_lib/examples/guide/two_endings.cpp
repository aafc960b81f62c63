#include <inferd/inferd.hpp>
#include <iostream>

int main() try {
  using namespace inferd::client;
  Connection connection;
  Sampling sampling;
  sampling.max_tokens = 24;
  auto story = connection.open(Prompt::text("Once upon a time there was a fox who"), sampling);
  const std::string beginning = story.read_all();
  for (const char* turn : {"\n\nThen it began to rain, and", "\n\nThen the sun came out, and"}) {
    auto ending = story.fork(sampling, Prompt::text(turn, 0));
    std::cout << beginning << turn << ending.read_all() << "\n----\n";
    std::cerr << ending.usage().cached_tokens << " tokens of it were there already\n";
  }
  return 0;
} catch (const inferd::client::Error& error) {
  std::cerr << "two-endings: " << error.what() << '\n';
  return 1;
}
