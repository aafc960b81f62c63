#include "daemon/kept_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <unordered_map>

namespace inferd::daemon {

namespace {

static_assert(TierIndex::kNobody == memory::PrefixIndex::kNobody);

// An entry takes 88 bytes; a million of them are 16 million tokens.
constexpr off_t kIndexBytesMax = 1 << 30;

std::string in_directory(const std::string& directory, const char* name) {
  return directory + "/" + name;
}

Result<std::vector<std::byte>> read_whole(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return errno_error("cannot look at it", errno);
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || status.st_size > kIndexBytesMax) {
    return Error(ErrorCode::kDataCorrupt, "it is no index that this daemon wrote");
  }
  std::vector<std::byte> bytes(static_cast<size_t>(status.st_size));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::read(file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error("cannot read it", errno);
    if (count == 0) return Error(ErrorCode::kDataCorrupt, "it became shorter");
    done += static_cast<size_t>(count);
  }
  return bytes;
}

Result<void> write_whole(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error("cannot write the index of cached pages", errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  if (::fsync(file) != 0) return errno_error("cannot write the index of cached pages", errno);
  return {};
}

}  // namespace

Result<UniqueFd> take_tier_directory(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_error("cannot make the directory '" + directory + "' for cached pages", errno);
  }
  UniqueFd taken(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!taken || ::fstat(taken.get(), &status) != 0) {
    return errno_error("cannot look at the directory '" + directory + "' for cached pages", errno);
  }
  const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (status.st_uid != ::geteuid() || others_write) {
    return Error(ErrorCode::kPermissionDenied,
                 "'" + directory +
                     "' must be a directory of the daemon's own user that nobody else can "
                     "write to; name such a one with [memory] disk_path");
  }
  if (::flock(taken.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error(ErrorCode::kUnavailable, "another daemon keeps its cached pages in '" + directory +
                                              "'; give each one a [memory] disk_path of its own");
  }
  return taken;
}

KeptIndex take_kept_index(const std::string& directory, const engine::ModelInfo& model) {
  const std::string path = in_directory(directory, kTierIndexName);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return {};
  const Result<std::vector<std::byte>> bytes = read_whole(file.get());
  ::unlink(path.c_str());
  if (!bytes) return {std::nullopt, bytes.error().message()};
  Result<TierIndex> index = decode_tier_index(*bytes);
  if (!index) return {std::nullopt, index.error().message()};
  if (index->content_id != model.content_id) return {std::nullopt, "they are of another model"};
  if (index->numerics_id != model.numerics_id || index->page_bytes != model.page_bytes.value) {
    return {std::nullopt, "they were computed by other kernels, which may differ in the last bit"};
  }
  return {std::move(*index), {}};
}

void remove_kept(const std::string& directory) {
  ::unlink(in_directory(directory, kTierIndexName).c_str());
  ::unlink(in_directory(directory, kTierFileName).c_str());
}

void remove_unused(const std::string& directory) {
  if (::access(in_directory(directory, kTierFileName).c_str(), F_OK) != 0 &&
      ::access(in_directory(directory, kTierIndexName).c_str(), F_OK) != 0) {
    return;
  }
  if (const Result<UniqueFd> taken = take_tier_directory(directory); taken.ok())
    remove_kept(directory);
}

Restored restore_kept(const TierIndex& index, const CacheDomains& domains,
                      uint32_t user_pinned_pages, memory::PrefixIndex& prefixes, DiskTier& tier) {
  std::vector<std::optional<CacheDomain>> known;
  for (const std::string& name : index.domains) known.push_back(domains.find(name));
  std::vector<uint32_t> nodes(index.entries.size(), memory::kNoIndex);
  Restored restored;
  for (size_t i = 0; i < index.entries.size(); ++i) {
    const TierIndex::Entry& entry = index.entries[i];
    const std::optional<CacheDomain>& domain = known[entry.domain];
    if (!domain || entry.position >= prefixes.slots()) continue;
    uint32_t parent = memory::kNoIndex;
    if (entry.parent != TierIndex::kNone) {
      parent = nodes[entry.parent];
      if (parent == memory::kNoIndex) continue;  // it could not be put back
    }
    nodes[i] = prefixes.restore(*domain, parent, entry.tokens);
    if (nodes[i] == memory::kNoIndex) continue;
    tier.adopt(prefixes.slot_of_node(nodes[i]), {entry.position, entry.checksum});
    ++restored.pages;
    if (entry.pinned_for == TierIndex::kNobody) continue;
    const bool pinned = prefixes.restore_pin(nodes[i], entry.pinned_for, user_pinned_pages);
    ++(pinned ? restored.pinned : restored.not_pinned);
  }
  prefixes.order_restored();
  return restored;
}

TierIndex describe_kept(const engine::ModelInfo& model, const CacheDomains& domains,
                        const memory::PrefixIndex& prefixes, const DiskTier& tier) {
  TierIndex index;
  index.content_id = model.content_id;
  index.numerics_id = model.numerics_id;
  index.page_bytes = model.page_bytes.value;
  index.slots = prefixes.slots();
  std::unordered_map<uint32_t, uint32_t> entry_of;  // by node
  std::unordered_map<uint64_t, uint32_t> domain_of;
  prefixes.visit_stored([&](uint32_t node, uint32_t parent, CacheDomain domain,
                            memory::SlotRef slot, std::span<const TokenId> tokens) {
    const std::optional<StoredPage> page = tier.stored_page(slot);
    const auto above = entry_of.find(parent);
    if (!page || (parent != memory::kNoIndex && above == entry_of.end())) return;
    const auto [place, is_new] =
        domain_of.try_emplace(domain.value, static_cast<uint32_t>(index.domains.size()));
    if (is_new) index.domains.push_back(domains.name_of(domain));
    TierIndex::Entry entry;
    entry.parent = parent == memory::kNoIndex ? TierIndex::kNone : above->second;
    entry.domain = place->second;
    entry.position = page->position;
    entry.checksum = page->checksum;
    entry.pinned_for = prefixes.pinned_for(node);
    std::copy(tokens.begin(), tokens.end(), entry.tokens.begin());
    entry_of.emplace(node, static_cast<uint32_t>(index.entries.size()));
    index.entries.push_back(entry);
  });
  return index;
}

Result<void> write_kept_index(const std::string& directory, const TierIndex& index) {
  const std::string path = in_directory(directory, kTierIndexName);
  const std::string draft = path + ".new";
  ::unlink(draft.c_str());
  const UniqueFd file(
      ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return errno_error("cannot make '" + draft + "'", errno);
  if (const Result<void> written = write_whole(file.get(), encode_tier_index(index)); !written) {
    ::unlink(draft.c_str());
    return written;
  }
  if (::rename(draft.c_str(), path.c_str()) != 0) {
    return errno_error("cannot name '" + path + "'", errno);
  }
  const UniqueFd parent(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent || ::fsync(parent.get()) != 0)
    return errno_error("cannot write '" + directory + "'", errno);
  return {};
}

}  // namespace inferd::daemon
