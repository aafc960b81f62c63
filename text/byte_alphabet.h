// GPT-2's printable form of bytes: each byte is written as one visible character.
// Owner: text, private to it. Pure functions, any thread.
// Source: the bytes_to_unicode table of Radford et al., "Language Models are Unsupervised Multitask Learners".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace inferd::text {

// "Ġthe" to " the"; nothing if a character is not of the alphabet.
std::optional<std::string> bytes_of_printable(std::string_view printable);

}  // namespace inferd::text
