// Sizes in words: "2 GiB" to bytes and back.
// Owner: base. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"

namespace inferd {

// Parses "123", "64 KiB", "1.5GiB", "2G" (K, M, G, T alone are powers of 1024, as systemd reads them).
// Errors: kInvalidArgument with the accepted forms.
Result<Bytes> parse_bytes(std::string_view text);

// "1.5 GiB", "64 KiB", "17 B": at most three significant figures after rounding down to one decimal.
std::string format_bytes(Bytes bytes);

}  // namespace inferd
