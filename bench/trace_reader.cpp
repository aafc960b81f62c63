#include "bench/trace_reader.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bench/trace_fields.h"

namespace inferd::bench {

namespace {

constexpr uint32_t kMooncakeBlockTokens = 512;
constexpr uint64_t kMillisecondsMax = 1'000'000'000'000;
constexpr uint64_t kPieceIdMax = (uint64_t{1} << 62) - 1;  // see trace.cpp

enum Column : size_t { kTime, kPrompt, kOutput, kUser, kClass, kPrefix, kPrefixTokens, kColumns };

struct CsvFormat {
  const char* name;
  std::array<std::string_view, kColumns> columns;  // empty: it has none
  std::optional<int64_t> (*parse_time)(std::string_view text);
  const char* time_form;  // for a sentence
};

constexpr CsvFormat kCsvFormats[] = {
    {"Azure LLM inference trace",
     {"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
     parse_date,
     "a date such as 2023-11-16 18:17:03.97"},
    {"BurstGPT", {"Timestamp", "Request tokens", "Response tokens"}, parse_seconds, "seconds"},
    {"inferd CSV",
     {"arrival_s", "prompt_tokens", "output_tokens", "user", "class", "prefix_id", "prefix_tokens"},
     parse_seconds,
     "seconds"},
};

constexpr const char* kKnownFormats =
    "known are CSV files whose first line names TIMESTAMP,ContextTokens,GeneratedTokens (Azure), "
    "Timestamp,Request tokens,Response tokens (BurstGPT) or arrival_s,prompt_tokens,output_tokens, "
    "and JSON lines with timestamp, input_length and output_length (Mooncake)";

Error at_line(uint64_t line, ErrorCode code, const std::string& sentence) {
  return Error(code, "line " + std::to_string(line) + ": " + sentence);
}

// Names as numbers, in the order of their first appearance.
class Names {
 public:
  uint32_t number_of(std::string_view name) {
    const auto [found, is_new] =
        numbers_.try_emplace(std::string(name), static_cast<uint32_t>(numbers_.size()));
    return found->second;
  }
  size_t size() const { return numbers_.size(); }

 private:
  std::map<std::string, uint32_t, std::less<>> numbers_;
};

class TraceReader {
 public:
  TraceReader(std::istream& stream, uint64_t requests_max)
      : stream_(stream), requests_max_(requests_max), buffer_(kTraceLineBytesMax + 1, '\0') {}

  Result<Trace> read() {
    INFERD_ASSIGN(const bool any, next_line());
    if (!any) return Error(ErrorCode::kDataCorrupt, "the trace is empty; is it the right file?");
    if (line_.starts_with("\xef\xbb\xbf")) line_.remove_prefix(3);
    if (line_.starts_with('{')) {
      trace_.format = "Mooncake";
      INFERD_TRY(read_json_lines());
    } else {
      INFERD_TRY(read_header());
      INFERD_TRY(read_rows());
    }
    if (stream_.bad()) {
      return Error(ErrorCode::kIo, "the trace could not be read to its end, only to line " +
                                       std::to_string(number_));
    }
    if (trace_.requests.empty()) {
      return Error(ErrorCode::kDataCorrupt,
                   "the trace has no request with tokens of prompt and answer");
    }
    sort();
    return std::move(trace_);
  }

 private:
  // False at the end.
  Result<bool> next_line() {
    do {
      stream_.getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
      const auto count = static_cast<size_t>(stream_.gcount());
      if (count == 0 && !stream_) return false;
      ++number_;
      if (stream_.fail() && !stream_.eof()) {
        return at_line(number_, ErrorCode::kDataCorrupt,
                       "longer than " + std::to_string(kTraceLineBytesMax) +
                           " bytes; is this a trace with a request a line?");
      }
      // getline() counts the line's end, which the last line may lack.
      line_ = std::string_view(buffer_).substr(0, stream_.eof() ? count : count - 1);
      if (line_.ends_with('\r')) line_.remove_suffix(1);
    } while (line_.empty());
    return true;
  }

  Result<void> read_header() {
    split_csv(line_, fields_);
    for (const CsvFormat& format : kCsvFormats) {
      for (size_t column = 0; column < kColumns; ++column) {
        const auto found = std::find(fields_.begin(), fields_.end(), format.columns[column]);
        const bool has = !format.columns[column].empty() && found != fields_.end();
        places_[column] = has ? static_cast<size_t>(found - fields_.begin()) : kAbsent;
      }
      if (std::max({places_[kTime], places_[kPrompt], places_[kOutput]}) == kAbsent) continue;
      format_ = &format;
      trace_.format = format.name;
      if ((places_[kPrefix] == kAbsent) != (places_[kPrefixTokens] == kAbsent)) {
        return at_line(number_, ErrorCode::kDataCorrupt,
                       "prefix_id and prefix_tokens belong together; name both columns or none");
      }
      return {};
    }
    return at_line(number_, ErrorCode::kUnsupported,
                   "\"" + shown(line_) + "\" begins no known trace; " + kKnownFormats);
  }

  Result<void> read_rows() {
    while (true) {
      INFERD_ASSIGN(const bool any, next_line());
      if (!any) return {};
      if (full()) return {};
      split_csv(line_, fields_);
      INFERD_TRY(read_row());
    }
  }

  Result<void> read_row() {
    TraceRequest request;
    INFERD_ASSIGN(const std::string_view time, field(kTime));
    const std::optional<int64_t> time_ns = format_->parse_time(time);
    if (!time_ns) return bad_field(kTime, time, format_->time_form);
    request.arrival_ns = *time_ns;
    INFERD_ASSIGN(request.prompt_tokens, tokens_field(kPrompt));
    INFERD_ASSIGN(request.output_tokens, tokens_field(kOutput));
    if (places_[kUser] != kAbsent) {
      INFERD_ASSIGN(const std::string_view user, field(kUser));
      request.user = users_.number_of(user);
      if (users_.size() > kTraceUsersMax) {
        return at_line(number_, ErrorCode::kDataCorrupt,
                       "more than " + std::to_string(kTraceUsersMax) +
                           " users; leave the column out, and say --users");
      }
    }
    if (places_[kClass] != kAbsent) {
      INFERD_ASSIGN(const std::string_view name, field(kClass));
      const auto priority = scheduler::parse_priority_class(name);
      if (!priority) return bad_field(kClass, name, "interactive, batch or idle");
      request.priority = *priority;
    }
    if (places_[kPrefix] != kAbsent) INFERD_TRY(read_prefix(request));
    add(std::move(request));
    return {};
  }

  Result<void> read_prefix(TraceRequest& request) {
    INFERD_ASSIGN(const std::string_view name, field(kPrefix));
    INFERD_ASSIGN(const uint32_t tokens, tokens_field(kPrefixTokens));
    if (tokens > request.prompt_tokens) {
      return at_line(number_, ErrorCode::kDataCorrupt,
                     "prefix_tokens is " + std::to_string(tokens) + ", more than the " +
                         std::to_string(request.prompt_tokens) + " of the prompt that it begins");
    }
    if (tokens > 0) request.pieces.push_back({prefixes_.number_of(name), tokens});
    return {};
  }

  Result<std::string_view> field(Column column) const {
    if (places_[column] < fields_.size()) return fields_[places_[column]];
    return at_line(number_, ErrorCode::kDataCorrupt,
                   "has " + std::to_string(fields_.size()) + " columns, and none for " +
                       std::string(format_->columns[column]) + "; the file may be cut off");
  }

  Result<uint32_t> tokens_field(Column column) const {
    INFERD_ASSIGN(const std::string_view text, field(column));
    const std::optional<uint64_t> count = parse_count(text, kTraceTokensMax);
    if (!count) return bad_field(column, text, "a whole number up to 10000000");
    return static_cast<uint32_t>(*count);
  }

  Error bad_field(Column column, std::string_view text, const char* expected) const {
    return at_line(number_, ErrorCode::kDataCorrupt,
                   std::string(format_->columns[column]) + " is \"" + shown(text) +
                       "\"; expected " + expected + ". Correct the line or take it out");
  }

  Result<void> read_json_lines() {
    while (true) {
      if (full()) return {};
      INFERD_TRY(read_json());
      INFERD_ASSIGN(const bool any, next_line());
      if (!any) return {};
    }
  }

  Result<void> read_json() {
    const auto json = nlohmann::json::parse(line_, nullptr, false);
    if (!json.is_object()) {
      return at_line(number_, ErrorCode::kDataCorrupt,
                     "\"" + shown(line_) + "\" is no JSON object; correct the line or take it out");
    }
    TraceRequest request;
    INFERD_ASSIGN(const uint64_t time_ms, json_count(json, "timestamp", kMillisecondsMax));
    request.arrival_ns = static_cast<int64_t>(time_ms) * 1'000'000;
    INFERD_ASSIGN(const uint64_t prompt, json_count(json, "input_length", kTraceTokensMax));
    INFERD_ASSIGN(const uint64_t output, json_count(json, "output_length", kTraceTokensMax));
    request.prompt_tokens = static_cast<uint32_t>(prompt);
    request.output_tokens = static_cast<uint32_t>(output);
    const auto ids = json.find("hash_ids");
    if (ids != json.end()) INFERD_TRY(read_blocks(*ids, request));
    add(std::move(request));
    return {};
  }

  Result<void> read_blocks(const nlohmann::json& ids, TraceRequest& request) const {
    uint32_t left = request.prompt_tokens;
    bool whole = ids.is_array();
    for (size_t i = 0; whole && i < ids.size() && left > 0; ++i) {
      whole = ids[i].is_number_unsigned() && ids[i].get<uint64_t>() <= kPieceIdMax;
      if (!whole) break;
      const uint32_t tokens = std::min(left, kMooncakeBlockTokens);
      request.pieces.push_back({ids[i].get<uint64_t>(), tokens});
      left -= tokens;
    }
    if (whole) return {};
    return at_line(number_, ErrorCode::kDataCorrupt,
                   "hash_ids is no list of whole numbers; correct the line or take it out");
  }

  Result<uint64_t> json_count(const nlohmann::json& json, const char* key, uint64_t max) const {
    const auto found = json.find(key);
    if (found != json.end() && found->is_number_unsigned() && found->get<uint64_t>() <= max) {
      return found->get<uint64_t>();
    }
    // Times may be written with decimals.
    if (found != json.end() && found->is_number_float()) {
      const double value = found->get<double>();
      if (value >= 0 && value <= static_cast<double>(max)) return static_cast<uint64_t>(value);
    }
    return at_line(number_, ErrorCode::kDataCorrupt,
                   std::string(key) + (found == json.end() ? " is missing" : " is out of range") +
                       "; expected a number from 0 to " + std::to_string(max) +
                       ". Correct the line or take it out");
  }

  bool full() {
    trace_.cut = trace_.requests.size() >= requests_max_;
    return trace_.cut;
  }

  void add(TraceRequest request) {
    if (request.prompt_tokens == 0 || request.output_tokens == 0) {
      ++trace_.skipped;
    } else {
      trace_.requests.push_back(std::move(request));
    }
  }

  void sort() {
    std::stable_sort(
        trace_.requests.begin(), trace_.requests.end(),
        [](const TraceRequest& a, const TraceRequest& b) { return a.arrival_ns < b.arrival_ns; });
    const int64_t first_ns = trace_.requests.front().arrival_ns;
    for (TraceRequest& request : trace_.requests) request.arrival_ns -= first_ns;
    trace_.users = static_cast<uint32_t>(users_.size());
  }

  static constexpr size_t kAbsent = SIZE_MAX;

  std::istream& stream_;
  const uint64_t requests_max_;
  std::string buffer_;
  std::string_view line_;  // into buffer_
  uint64_t number_ = 0;    // of the line
  const CsvFormat* format_ = nullptr;
  std::array<size_t, kColumns> places_{};  // of the columns
  std::vector<std::string_view> fields_;   // into buffer_
  Names users_;
  Names prefixes_;
  Trace trace_;
};

}  // namespace

Result<Trace> read_trace(std::istream& stream, uint64_t requests_max) {
  return TraceReader(stream, requests_max).read();
}

}  // namespace inferd::bench
