// Prints llama.cpp's ids of every text of a corpus (hexadecimal, one a line), without and with names of control
// tokens recognised; "refused" where it throws instead. Built and run by make.py.
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "llama.h"

int main(int, char** arguments) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  auto parameters = llama_model_default_params();
  parameters.vocab_only = true;
  const auto* model = llama_model_load_from_file(arguments[1], parameters);
  if (model == nullptr) return 1;
  const auto* vocabulary = llama_model_get_vocab(model);
  std::ifstream corpus(arguments[2]);
  for (std::string line; std::getline(corpus, line);) {
    std::string text;
    for (size_t i = 0; i + 1 < line.size(); i += 2) {
      text += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    }
    for (const bool special : {false, true}) {
      std::vector<llama_token> ids(text.size() + 16);
      try {
        const int count = llama_tokenize(vocabulary, text.data(), static_cast<int>(text.size()), ids.data(),
                                         static_cast<int>(ids.size()), true, special);
        for (int i = 0; i < count; ++i) std::printf("%s%d", i > 0 ? " " : "", ids[i]);
      } catch (const std::exception&) {
        std::printf("refused");  // a code point beyond U+10FFFF
      }
      std::puts("");
    }
  }
}
