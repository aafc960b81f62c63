#include "daemon/tier_index.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <type_traits>

namespace inferd::daemon {

namespace {

// Little-endian, as are all machines that this runs on.
constexpr uint64_t kMagic = 0x7865646e69726974;  // "tirindex"
constexpr uint32_t kVersion = 2;
constexpr uint32_t kTextBytesMax = 4096;
constexpr uint32_t kDomainsMax = 1u << 16;
constexpr size_t kSumBytes = sizeof(uint64_t);
constexpr size_t kEntryBytes =
    4 * sizeof(uint32_t) + sizeof(uint64_t) + kPageTokens * sizeof(TokenId);

class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_integral_v<T>);
    append(&value, sizeof(T));
  }
  void put_text(const std::string& text) {
    put(static_cast<uint32_t>(text.size()));
    append(text.data(), text.size());
  }
  void append(const void* data, size_t bytes) {
    const auto* first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + bytes);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Once something is missing, everything that follows is 0 and ok() is false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T get() {
    static_assert(std::is_integral_v<T>);
    T value{};
    if (bytes_.size() < sizeof(T)) {
      fail();
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  std::string get_text() {
    const auto length = get<uint32_t>();
    if (length > kTextBytesMax || length > bytes_.size()) {
      fail();
      return {};
    }
    std::string text(reinterpret_cast<const char*>(bytes_.data()), length);
    bytes_ = bytes_.subspan(length);
    return text;
  }
  size_t left() const { return bytes_.size(); }
  bool ok() const { return ok_; }

 private:
  void fail() {
    ok_ = false;
    bytes_ = {};
  }

  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

Error corrupt(const std::string& what) {
  return Error(ErrorCode::kDataCorrupt, "the index of cached pages on disk is damaged: " + what);
}

Result<void> check_entries(const TierIndex& index) {
  std::vector<bool> taken(index.slots, false);
  for (size_t i = 0; i < index.entries.size(); ++i) {
    const TierIndex::Entry& entry = index.entries[i];
    if (entry.parent != TierIndex::kNone && entry.parent >= i) {
      return corrupt("a page comes before the one that it follows");
    }
    if (entry.domain >= index.domains.size() ||
        (entry.parent != TierIndex::kNone && index.entries[entry.parent].domain != entry.domain)) {
      return corrupt("a page belongs to nobody");
    }
    if (entry.position >= index.slots || taken[entry.position]) {
      return corrupt("two pages lie at one place, or one beyond the end");
    }
    taken[entry.position] = true;
    if (entry.pinned_for != TierIndex::kNobody && entry.parent != TierIndex::kNone &&
        index.entries[entry.parent].pinned_for == TierIndex::kNobody) {
      return corrupt("a pinned page follows one that is not");
    }
  }
  return {};
}

}  // namespace

std::vector<std::byte> encode_tier_index(const TierIndex& index) {
  Writer writer;
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(kPageTokens);
  writer.put_text(index.content_id);
  writer.put_text(index.numerics_id);
  writer.put(index.page_bytes);
  writer.put(index.slots);
  writer.put(static_cast<uint32_t>(index.domains.size()));
  for (const std::string& domain : index.domains) writer.put_text(domain);
  writer.put(static_cast<uint32_t>(index.entries.size()));
  for (const TierIndex::Entry& entry : index.entries) {
    writer.put(entry.parent);
    writer.put(entry.domain);
    writer.put(entry.position);
    writer.put(entry.checksum);
    writer.put(entry.pinned_for.value);
    writer.append(entry.tokens.data(), entry.tokens.size() * sizeof(TokenId));
  }
  const uint64_t sum = XXH3_64bits(writer.bytes().data(), writer.bytes().size());
  writer.put(sum);
  return writer.take();
}

Result<TierIndex> decode_tier_index(std::span<const std::byte> bytes) {
  if (bytes.size() < kSumBytes) return corrupt("it is too short");
  uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + bytes.size() - kSumBytes, kSumBytes);
  bytes = bytes.first(bytes.size() - kSumBytes);
  Reader reader(bytes);
  if (reader.get<uint64_t>() != kMagic) return corrupt("it does not begin like one");
  const auto version = reader.get<uint32_t>();
  const auto page_tokens = reader.get<uint32_t>();
  if (version != kVersion || page_tokens != kPageTokens) {
    return Error(ErrorCode::kUnsupported, "the index of cached pages on disk is of version " +
                                              std::to_string(version) + ", and this daemon reads " +
                                              std::to_string(kVersion));
  }
  if (XXH3_64bits(bytes.data(), bytes.size()) != sum) return corrupt("its sum is wrong");
  TierIndex index;
  index.content_id = reader.get_text();
  index.numerics_id = reader.get_text();
  index.page_bytes = reader.get<uint64_t>();
  index.slots = reader.get<uint32_t>();
  const auto domains = reader.get<uint32_t>();
  if (domains > kDomainsMax) return corrupt("it has too many domains");
  for (uint32_t i = 0; i < domains && reader.ok(); ++i) index.domains.push_back(reader.get_text());
  const auto entries = reader.get<uint32_t>();
  if (!reader.ok() || reader.left() / kEntryBytes != entries || reader.left() % kEntryBytes != 0 ||
      index.slots < entries) {
    return corrupt("its length is wrong");
  }
  index.entries.resize(entries);
  for (TierIndex::Entry& entry : index.entries) {
    entry.parent = reader.get<uint32_t>();
    entry.domain = reader.get<uint32_t>();
    entry.position = reader.get<uint32_t>();
    entry.checksum = reader.get<uint64_t>();
    entry.pinned_for = UserId(reader.get<uint32_t>());
    for (TokenId& token : entry.tokens) token = reader.get<TokenId>();
  }
  INFERD_TRY(check_entries(index));
  return index;
}

}  // namespace inferd::daemon
