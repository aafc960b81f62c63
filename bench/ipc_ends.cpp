#include "bench/ipc_ends.h"

#include "bench/ipc_ring_ends.h"
#include "bench/ipc_socket_ends.h"

namespace inferd::bench {

const char* way_name(Way way) {
  switch (way) {
    case Way::kRing:
      return "ring";
    case Way::kUnix:
      return "unix";
    case Way::kSse:
      return "sse";
  }
  return "";
}

Result<Channel> open_channel(Way way) {
  return way == Way::kRing ? open_ring_channel() : open_socket_channel(way);
}

}  // namespace inferd::bench
