#include <inferd/inferd.hpp>
#include <iostream>

int main() try {
  using namespace inferd::client;
  Connection connection;
  const std::string preamble =
      "You sort letters to a library. Answer with one word: loan, return, complaint or other. A "
      "letter that asks for a book is a loan, one that brings it back is a return, and whoever is "
      "angry complains.\n";
  Sampling sampling;
  sampling.max_tokens = 1;
  connection.open(Prompt::text(preamble), sampling).read_all();  // computed, and so cached
  std::cerr << connection.pin(Prompt::text(preamble)) << " tokens are pinned\n";

  sampling.max_tokens = 6;
  auto answer = connection.open(Prompt::text(preamble + "Letter: May I have Moby Dick?\nAnswer:"),
                                sampling);
  std::cout << answer.read_all() << '\n';
  std::cerr << answer.usage().cached_tokens << " tokens were there already\n";
  connection.unpin();  // a pin outlives the program that made it
  return 0;
} catch (const inferd::client::Error& error) {
  std::cerr << "pinned-preamble: " << error.what() << '\n';
  return 1;
}
