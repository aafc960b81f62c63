#include <chrono>
#include <inferd/inferd.hpp>
#include <iostream>

int main() try {
  using namespace inferd::client;
  Connection connection;
  Sampling sampling;
  sampling.max_tokens = 40;
  sampling.priority = INFERD_PRIORITY_BATCH;     // nobody waits for the single token
  sampling.deadline = std::chrono::seconds(60);  // not worth starting later
  auto summary =
      connection.open(Prompt::chat(R"([{"role":"user","content":"Praise the sea."}])"), sampling);
  summary.renice(INFERD_PRIORITY_IDLE, 10);  // on second thoughts, with what is left over
  std::cout << summary.read_all() << '\n';
  std::cerr << "waited " << summary.usage().queue_ms << " ms for its turn\n";
  return 0;
} catch (const inferd::client::Error& error) {
  std::cerr << "background-work: " << error.what() << '\n';
  return error.status() == INFERD_TIMED_OUT ? 3 : 1;
}
