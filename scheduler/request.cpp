#include "scheduler/request.h"

namespace inferd::scheduler {

std::string_view finish_reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

std::string_view priority_class_name(PriorityClass priority) noexcept {
  switch (priority) {
    case PriorityClass::kInteractive:
      return "interactive";
    case PriorityClass::kBatch:
      return "batch";
    case PriorityClass::kIdle:
      return "idle";
  }
  return "unknown";
}

std::optional<PriorityClass> parse_priority_class(std::string_view name) noexcept {
  for (uint8_t i = 0; i < kPriorityClasses; ++i) {
    const auto priority = static_cast<PriorityClass>(i);
    if (priority_class_name(priority) == name) return priority;
  }
  return std::nullopt;
}

std::string_view sequence_state_name(SequenceState state) noexcept {
  switch (state) {
    case SequenceState::kWaiting:
      return "waiting";
    case SequenceState::kPrefilling:
      return "prefilling";
    case SequenceState::kDecoding:
      return "decoding";
  }
  return "unknown";
}

}  // namespace inferd::scheduler
