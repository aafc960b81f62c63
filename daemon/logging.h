// The daemon's log: standard error, or the journal with structured fields when systemd reads it.
// Owner: main() initialises it once; then any thread may log. It may block on a slow terminal, so the
// engine thread never logs: it reports to the control thread, which does.
// A prompt or an answer, as text or as token ids, never goes into the log.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace inferd::daemon {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError, kOff };

// "trace", "debug", "info", "warn", "error", "off"; anything else is kInfo (the config checked it).
LogLevel parse_log_level(std::string_view name) noexcept;

// A structured field: an upper-case name as the journal wants it ("INFERD_SESSION"), and its value.
struct LogField {
  std::string_view name;
  std::string value;
};

// Chooses the sink: the journal if standard error is connected to it (JOURNAL_STREAM names the same
// file), standard error otherwise. Call once, before other threads start.
void init_logging(LogLevel level);
void set_log_level(LogLevel level) noexcept;

void log_message(LogLevel level, std::string_view text, std::span<const LogField> fields);
inline void log_debug(std::string_view text, std::initializer_list<LogField> fields = {}) {
  log_message(LogLevel::kDebug, text, {fields.begin(), fields.size()});
}
inline void log_info(std::string_view text, std::initializer_list<LogField> fields = {}) {
  log_message(LogLevel::kInfo, text, {fields.begin(), fields.size()});
}
inline void log_warn(std::string_view text, std::initializer_list<LogField> fields = {}) {
  log_message(LogLevel::kWarn, text, {fields.begin(), fields.size()});
}
inline void log_error(std::string_view text, std::initializer_list<LogField> fields = {}) {
  log_message(LogLevel::kError, text, {fields.begin(), fields.size()});
}

// Whether `journal_stream` ("DEVICE:INODE", the variable JOURNAL_STREAM; may be null) names the file
// that descriptor `fd` is open on. Source: systemd.exec(5).
bool is_journal_stream(const char* journal_stream, int fd) noexcept;

// One line out of a text that an outsider chose: control characters become '?', at most 200 bytes.
std::string printable(std::string_view text);

}  // namespace inferd::daemon
