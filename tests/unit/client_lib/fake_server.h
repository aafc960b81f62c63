// A daemon in miniature for the library's tests: real socket, real handshake, real rings
// (ipc::ServerSession), and answers that a test writes down beforehand.
// Owner: tests/unit/client_lib. Its public functions may be called by any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "ipc/doorbell_batch.h"
#include "ipc/server_session.h"

namespace inferd::test {

// What the server answers to one submission.
struct Script {
  std::vector<TokenId> ids = {};
  ipc::FinishReason reason = ipc::FinishReason::kStop;
  std::optional<Error> error = {};  // ends with it instead
  bool hold = false;                // after the tokens, goes on without any until it is cancelled
  bool silent = false;              // not even accepted
  uint32_t tokens_per_step = 1;
  uint32_t cached_tokens = 0;
  uint32_t computed_tokens = 0;
  uint32_t preemptions = 0;
  uint64_t queue_ns = 0;
  uint32_t step_us = 0;  // pause before each step of the server
};

// Ids of the test vocabulary: every byte is the id of its value, then these.
inline constexpr TokenId kHello = 256;  // "Hello"
inline constexpr TokenId kWorld = 257;  // " world"
inline constexpr TokenId kEn = 258;     // "EN"
inline constexpr TokenId kD = 259;      // "D"
inline constexpr TokenId kBen = 260;    // "bEN"
inline constexpr TokenId kEos = 261;    // "<|end|>", control
inline constexpr TokenId kUser = 262;   // "<|user|>", control
inline constexpr TokenId kModel = 263;  // "<|model|>", control
inline constexpr uint32_t kVocabulary = 264;

// Text tables of that vocabulary.
std::vector<uint8_t> test_tables();

// Ids of a text, byte by byte.
std::vector<TokenId> bytes_as_ids(std::string_view text);

class FakeServer {
 public:
  using Handler = std::function<Script(const ipc::Submission&)>;
  struct Options {
    ipc::Geometry geometry = {128, 256, 16384};
    std::optional<Error> refuse;  // the handshake's answer
    bool mute = false;            // takes connections and says nothing
    bool drain = true;            // reads submissions
    bool mute_renice = false;     // answers none
    bool mute_pins = false;       // answers none
    uint64_t features = ipc::kFeatures;
    std::string path = {};  // empty: one of its own
    std::string model_name = "tiny";
    std::string numerics_id = "test-1";
    std::vector<ipc::ModelInfo> other_models = {};  // half of them are listed before its own
  };

  // The same answer to everyone.
  explicit FakeServer(Script script) : FakeServer(std::move(script), Options()) {}
  FakeServer(Script script, Options options)
      : FakeServer([script = std::move(script)](const ipc::Submission&) { return script; },
                   std::move(options)) {}
  explicit FakeServer(Handler handler) : FakeServer(std::move(handler), Options()) {}
  FakeServer(Handler handler, Options options);
  ~FakeServer();

  const std::string& path() const { return path_; }
  // Dies as a daemon that is killed does: everything closed, nothing said.
  void kill();
  // Ends every session with a last word, then closes it.
  void end_sessions(const Error& error);

  uint64_t sessions() const { return sessions_count_; }
  uint64_t running() const { return running_count_; }
  uint64_t cancels() const { return cancels_; }
  uint64_t truncations() const { return truncations_; }
  uint64_t renices() const { return renices_; }
  uint32_t pinned_tokens() const { return pinned_tokens_; }
  uint64_t delivered() const { return delivered_; }  // of the last truncation
  uint64_t bells() const { return bells_; }          // rung for clients
  std::vector<TokenId> last_prompt() const;
  ipc::SubmitRecord last_fields() const;
  std::string last_client_name() const;
  std::string last_cache_domain() const;

 private:
  struct Running;
  struct Session;
  class Visitor;

  void run();
  void accept_one();
  bool serve(Session& session);
  bool step(Session& session, Running& running);

  Handler handler_;
  Options options_;
  std::string dir_, path_;
  UniqueFd listener_, wake_;
  UniqueFd tables_;
  uint64_t tables_bytes_ = 0;
  std::vector<std::unique_ptr<Session>> sessions_;
  ipc::DrainScratch scratch_;
  std::unique_ptr<ipc::DoorbellBatch> doorbells_ = ipc::DoorbellBatch::create().value();
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> sessions_count_{0}, running_count_{0}, cancels_{0}, truncations_{0},
      delivered_{0}, bells_{0}, renices_{0};
  std::atomic<uint32_t> pinned_tokens_{0};
  mutable std::mutex mutex_;
  std::optional<Error> last_word_;      // under mutex_
  std::vector<TokenId> last_prompt_;    // under mutex_
  ipc::SubmitRecord last_fields_ = {};  // under mutex_
  std::string last_client_name_;        // under mutex_
  std::string last_cache_domain_;       // under mutex_
};

}  // namespace inferd::test
