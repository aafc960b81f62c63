#include "daemon/logging.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace inferd::daemon {

namespace {

// Fields of the message that this thread is logging; spdlog carries only the text to its sinks.
thread_local std::span<const LogField> current_fields;

// Priorities of syslog(3), which the journal keeps as PRIORITY.
int syslog_priority(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical: return 2;
    case spdlog::level::err: return 3;
    case spdlog::level::warn: return 4;
    case spdlog::level::info: return 6;
    default: return 7;
  }
}

class JournalSink final : public spdlog::sinks::base_sink<std::mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::vector<std::string> lines;
    lines.reserve(current_fields.size() + 3);
    lines.push_back("MESSAGE=" + std::string(message.payload.data(), message.payload.size()));
    lines.push_back("PRIORITY=" + std::to_string(syslog_priority(message.level)));
    lines.push_back("SYSLOG_IDENTIFIER=inferd");
    for (const LogField& field : current_fields) {
      lines.push_back(std::string(field.name) + "=" + field.value);
    }
    std::vector<iovec> vectors;
    vectors.reserve(lines.size());
    for (std::string& line : lines) vectors.push_back({line.data(), line.size()});
    // A journal that is away must not end the daemon; there is nobody to tell.
    static_cast<void>(sd_journal_sendv(vectors.data(), static_cast<int>(vectors.size())));
  }
  void flush_() override {}
};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace: return spdlog::level::trace;
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kOff: return spdlog::level::off;
  }
  return spdlog::level::info;
}

}  // namespace

LogLevel parse_log_level(std::string_view name) noexcept {
  if (name == "trace") return LogLevel::kTrace;
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warn") return LogLevel::kWarn;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return LogLevel::kInfo;
}

void init_logging(LogLevel level) {
  std::shared_ptr<spdlog::logger> logger;
  if (is_journal_stream(std::getenv("JOURNAL_STREAM"), STDERR_FILENO)) {
    logger = std::make_shared<spdlog::logger>("inferd", std::make_shared<JournalSink>());
  } else {
    logger = std::make_shared<spdlog::logger>(
        "inferd", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z inferd[%P] %^%l%$ %v");
  }
  logger->set_level(to_spdlog(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

void set_log_level(LogLevel level) noexcept { spdlog::default_logger_raw()->set_level(to_spdlog(level)); }

void log_message(LogLevel level, std::string_view text, std::span<const LogField> fields) {
  current_fields = fields;
  spdlog::default_logger_raw()->log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
  current_fields = {};
}

bool is_journal_stream(const char* journal_stream, int fd) noexcept {
  if (journal_stream == nullptr) return false;
  uint64_t device = 0;
  uint64_t inode = 0;
  if (std::sscanf(journal_stream, "%" SCNu64 ":%" SCNu64, &device, &inode) != 2) return false;
  struct stat status = {};
  return ::fstat(fd, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

std::string printable(std::string_view text) {
  constexpr size_t kShownMax = 200;
  std::string shown(text.substr(0, kShownMax));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return shown;
}

}  // namespace inferd::daemon
