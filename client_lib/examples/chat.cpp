// A chat on the terminal that streams its answers, in C++: one line in, one answer out.
// usage: example-chat < lines
#include <inferd/inferd.hpp>
#include <iostream>
#include <string>

namespace {

// Text as a JSON string.
std::string quoted(const std::string& text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string message(const char* role, const std::string& content) {
  return std::string("{\"role\":\"") + role + "\",\"content\":" + quoted(content) + "}";
}

}  // namespace

int main() try {
  inferd::client::Connection connection;
  std::cerr << "talking to " << connection.model().name << "; end with Ctrl-D\n";
  inferd::client::Sampling sampling;
  sampling.max_tokens = 64;

  std::string messages;
  for (std::string line; std::getline(std::cin, line);) {
    if (!messages.empty()) messages += ',';
    messages += message("user", line);
    auto answer = connection.open(inferd::client::Prompt::chat("[" + messages + "]"), sampling);
    std::string text;
    for (const auto& event : answer) {
      text += event.text;
      std::cout << event.text << std::flush;
    }
    std::cout << '\n';
    messages += ',' + message("assistant", text);
  }
  return 0;
} catch (const inferd::client::Error& error) {
  std::cerr << "example-chat: " << error.what() << '\n';
  return 1;
}
