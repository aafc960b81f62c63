// The Varlink interface descriptions that the control socket publishes.
// Owner: daemon. Constants, any thread.
#pragma once

#include <string_view>

namespace inferd::daemon {

inline constexpr std::string_view kServiceInterface = "org.varlink.service";
inline constexpr std::string_view kControlInterface = "org.inferd.Control";

inline constexpr std::string_view kServiceInterfaceText = R"(# What every Varlink service offers
interface org.varlink.service

# The service's name, and the interfaces that it has
method GetInfo() -> (
  vendor: string,
  product: string,
  version: string,
  url: string,
  interfaces: []string
)

# The description of one interface, in this language
method GetInterfaceDescription(interface: string) -> (description: string)

error InterfaceNotFound (interface: string)
error MethodNotFound (method: string)
error MethodNotImplemented (method: string)
error InvalidParameter (parameter: string)
error PermissionDenied ()
)";

inline constexpr std::string_view kControlInterfaceText = R"(# Administration of one inferd daemon
interface org.inferd.Control

# KV pages of the pool, by what they are used for
type Pages (total: int, free: int, live: int, cached: int)

# Pages on disk: room for slots, of which used hold something. lost ones were damaged, failed ones could not be
# written; both were computed again where they were needed
type Disk (
  slots: int,
  used: int,
  pages_stored: int,
  pages_loaded: int,
  pages_lost: int,
  store_failures: int
)

# Cached prefixes of one domain, user:UID or shared:NAME: pages in all, and how many of them are on disk, be it that
# they are in memory too
type CachedPages (domain: string, pages: int, stored: int)

# Tokens since the daemon started
type Tokens (prompt: int, computed: int, cached: int, generated: int)

type Model (
  name: string,
  path: string,
  architecture: string,
  quantization: string,
  parameters: int,
  context_tokens: int,
  file_bytes: int,
  weight_bytes: int,
  page_bytes: int,
  numerics_id: string,
  content_id: string,
  loaded: bool
)

# state: waiting, prefilling, decoding, or paused; priority: interactive, batch, or idle; nice: -20 (first)
# to 19, within the priority; parent: the sequence that it was forked from, 0 for none
type Sequence (
  id: int,
  session: int,
  pid: int,
  uid: int,
  client: string,
  state: string,
  priority: string,
  nice: int,
  parent: int,
  prompt_tokens: int,
  computed_tokens: int,
  cached_tokens: int,
  generated_tokens: int,
  pages: int,
  age_s: float
)

type Session (id: int, pid: int, uid: int, client: string, sequences: int, age_s: float)

# Times of one kind: the wait of requests that ended (without pages, in the queue or preempted), the time from a
# request to its first token, or that between two tokens. The percentiles are off by at most 1/32
type Times (count: int, mean_ms: float, p50_ms: float, p90_ms: float, p99_ms: float, max_ms: float)

# accepted are all but the refused ones; the rest is how those that are over ended
type Requests (
  accepted: int,
  refused: int,
  finished: int,
  cancelled: int,
  overdue: int,
  failed: int
)

# Tokens of one user or session. computed has the recomputed ones, lost by preemption, among them
type AccountTokens (prompt: int, cached: int, computed: int, recomputed: int, generated: int)

# hits: requests of whose prompt something was cached. pages: a user's are those charged to it, a session's those in
# its page tables; pages_max is the most that a step saw
type Account (
  requests: Requests,
  tokens: AccountTokens,
  hits: int,
  preemptions: int,
  sequences: int,
  pages: int,
  pages_max: int,
  wait_s: float,
  wait: Times,
  ttft: Times,
  itl: Times
)

type UserAccount (uid: int, sessions: int, figures: Account)

type SessionAccount (id: int, pid: int, uid: int, client: string, figures: Account)

# For how much of the last 10, 60 and 300 seconds, in percent, and of all time, work stood still for want of pages or
# of compute. kind: some, or full
type Pressure (
  resource: string,
  kind: string,
  avg10: float,
  avg60: float,
  avg300: float,
  total_us: int
)

# A key of the configuration file that differs from what the daemon started with
type Change (key: string, from: string, to: string)

# Sequences and sessions are those that the caller may see: its own, or all for an administrator
method Status() -> (
  version: string,
  pid: int,
  uptime_s: float,
  models: []string,
  pages: Pages,
  disk: Disk,
  sequences: int,
  sessions: int,
  tokens: Tokens
)

method List() -> (models: []Model)

# The caller's own sequences and sessions; all of them for root and the daemon's user
method Ps() -> (sequences: []Sequence, sessions: []Session)

# What users and connected sessions were given since the daemon started. The caller's own; for administrators all,
# and then others is what users came to that left long ago, and total everything
method Top() -> (
  users: []UserAccount,
  sessions: []SessionAccount,
  pressure: []Pressure,
  others: ?Account,
  total: ?Account
)

# How memory and compute are used, by the whole daemon
method Vmstat() -> (
  waiting: int,
  running: int,
  paused: int,
  pages: Pages,
  steps: int,
  preemptions: int,
  pages_given_back: int,
  tokens: AccountTokens,
  pressure: []Pressure
)

# Ends a sequence of the caller; any sequence for an administrator
method Cancel(sequence: int) -> ()

# Changes how urgent a sequence of the caller is, and tells what it is now. A more urgent priority, a lower
# nice, and other users' sequences are for administrators
method Renice(sequence: int, priority: ?string, nice: ?int) -> (priority: string, nice: int)

# The caller's own cached prefixes; those of all domains for an administrator
method CacheStat() -> (domains: []CachedPages)

# Forgets the cached prefixes of a domain, and erases what is on disk of it. Without a domain: the caller's own, for an
# administrator all. Other domains are for administrators
method CacheFlush(domain: ?string) -> (pages: int)

# Pins what is cached of these tokens in the caller's own domain: it goes after everything that is not pinned. pages: how
# many whole pages of them there are
method CachePin(tokens: []int) -> (pages: int)

# The caller's cached prefixes are pinned no longer
method CacheUnpin() -> (pages: int)

# Walks every invariant of the daemon. Administrators only, as all that follows
method Verify() -> (ok: bool, violations: []string)

# Takes no new requests, finishes what runs without a deadline, then exits
method Drain() -> ()

# Reads the configuration file again
method Reload() -> (applied: []Change, needs_restart: []Change)

# trace, debug, info, warn, error, or off
method LogLevel(level: string) -> ()

# Counters and histograms as Prometheus text
method Metrics() -> (text: string)

error NotFound (message: string)
error PermissionDenied (message: string)
error InvalidArgument (message: string)
error Unavailable (message: string)
error Failed (message: string)
)";

}  // namespace inferd::daemon
