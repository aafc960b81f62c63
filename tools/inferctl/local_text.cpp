#include "tools/inferctl/local_text.h"

#include <cstring>

#include "formats/gguf.h"
#include "formats/gguf_vocabulary.h"
#include "text/text_tables.h"

namespace inferd::inferctl {

Result<LocalText> LocalText::open(const std::string& path) {
  INFERD_ASSIGN(const formats::GgufFile file, formats::GgufFile::open(path));
  auto vocabulary = formats::read_vocabulary(file);
  if (!vocabulary) return vocabulary.error().with_context(path);
  auto tables_bytes = build_text_tables(*vocabulary);
  if (!tables_bytes) return tables_bytes.error().with_context(path);

  LocalText text;
  const std::vector<uint8_t>& bytes = *tables_bytes;
  text.block_.resize((bytes.size() + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  std::memcpy(text.block_.data(), bytes.data(), bytes.size());
  INFERD_ASSIGN(
      const TextTables tables,
      TextTables::open({reinterpret_cast<const uint8_t*>(text.block_.data()), bytes.size()}));
  INFERD_ASSIGN(Tokenizer tokenizer, Tokenizer::create(tables));
  text.tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
  return text;
}

std::string LocalText::chat_template(bool with_tools) const {
  const TextTables& tables = tokenizer_->tables();
  for (uint32_t i = 0; with_tools && i < tables.named_template_count(); ++i) {
    if (tables.template_name(i) == "tool_use") return std::string(tables.named_template(i));
  }
  return std::string(tables.chat_template());
}

}  // namespace inferd::inferctl
