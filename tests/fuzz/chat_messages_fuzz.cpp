// Chat messages as a client's user writes them: any bytes end in a prompt or in a sentence, through
// parsing, rendering and tokenizing, and what they say never becomes a control token.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/unique_fd.h"
#include "client_lib/model_text.h"
#include "tests/fuzz/small_vocabulary.h"

namespace {

using namespace inferd;

// Writes two marks of its own around what the messages say, in all the ways real templates use, and
// through filters that would make a mark of "<END>" or of its halves.
constexpr char kTemplate[] =
    "<end>{%- for m in messages -%}"
    "{%- if m is mapping -%}"
    "{{- m.role ~ ': ' -}}"
    "{%- if m.content is string -%}{{- m.content | trim | lower -}}"
    "{%- elif m.content is iterable -%}"
    "{%- for part in m.content -%}{{- part['text'] | default('') -}}{%- endfor -%}"
    "{%- endif -%}"
    "{%- for call in m.tool_calls or [] -%}"
    "{{- call.function.name -}}{{- call.function.arguments | tojson -}}{%- endfor -%}"
    "{%- else -%}{{- m | string | replace('x', '') -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- for tool in tools or [] -%}{{- tool | tojson(indent=2) -}}{%- endfor -%}"
    "<end>";
constexpr std::ptrdiff_t kMarksOfTheTemplate = 2;

std::unique_ptr<client_lib::ModelText> model_text(fuzz::VocabularyKind kind, const char* pre) {
  Vocabulary vocabulary = fuzz::small_vocabulary(kind, pre);
  vocabulary.chat_template = kTemplate;
  size_t bytes = 0;
  const std::vector<uint64_t> words = fuzz::built_tables(vocabulary, bytes);
  UniqueFd fd(memfd_create("text tables", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  INFERD_CHECK(write(fd.get(), words.data(), bytes) == static_cast<ssize_t>(bytes));
  INFERD_CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0);
  auto opened = client_lib::ModelText::open(std::move(fd), bytes);
  INFERD_CHECK(opened.ok());
  return std::move(opened).value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<client_lib::ModelText> models[] = {
      model_text(fuzz::VocabularyKind::kByteLevel, "llama-bpe"),
      model_text(fuzz::VocabularyKind::kSentencePiece, "")};
  const std::string_view chat(reinterpret_cast<const char*>(data), size);
  for (const auto& model : models) {
    const auto ids = model->render_chat(chat);
    if (!ids) {
      INFERD_CHECK(!ids.error().message().empty());
      continue;
    }
    INFERD_CHECK(std::count(ids->begin(), ids->end(), fuzz::kEndToken) == kMarksOfTheTemplate);
  }
  return 0;
}
