#include "fake_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/vocabulary.h"
#include "ipc/handshake.h"
#include "ipc/socket.h"
#include "text/text_tables.h"

namespace inferd::test {
namespace {

// GPT-2's printable form of a byte, as UTF-8.
std::string printable(unsigned char byte) {
  const auto shown = [](unsigned b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  unsigned code = byte;
  if (!shown(byte)) {
    code = 256;
    for (unsigned b = 0; b < byte; ++b) code += shown(b) ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

Vocabulary test_vocabulary() {
  Vocabulary v;
  v.model = "gpt2";
  for (unsigned b = 0; b < 256; ++b) v.tokens.push_back(printable(static_cast<unsigned char>(b)));
  for (const char* text : {"Hello", "Ġworld", "EN", "D", "bEN"}) v.tokens.emplace_back(text);
  v.types.assign(v.tokens.size(), TokenType::kNormal);
  for (const char* text : {"<|end|>", "<|user|>", "<|model|>"}) {
    v.tokens.emplace_back(text);
    v.types.push_back(TokenType::kControl);
  }
  v.eos = kEos;
  v.end_of_generation = {kEos};
  v.chat_template =
      "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<|model|>{% endif %}";
  return v;
}

}  // namespace

std::vector<uint8_t> test_tables() {
  return std::move(build_text_tables(test_vocabulary())).value();
}

std::vector<TokenId> bytes_as_ids(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

struct FakeServer::Running {
  uint64_t cookie;
  Script script;
  uint32_t prompt_tokens;
  bool logprobs;
  uint32_t top;
  uint32_t sent = 0;
};

struct FakeServer::Session {
  UniqueFd socket;
  std::unique_ptr<ipc::ServerSession> rings;
  std::vector<Running> running;
};

class FakeServer::Visitor final : public ipc::SubmissionVisitor {
 public:
  Visitor(FakeServer& server, Session& session) : server_(server), session_(session) {}

  void on_submit(const ipc::Submission& s) override {
    {
      const std::lock_guard lock(server_.mutex_);
      server_.last_prompt_.assign(s.prompt.begin(), s.prompt.end());
      server_.last_fields_ = s.fields;
    }
    Script script = server_.handler_(s);
    if (script.silent) return;
    const auto prompt_tokens = static_cast<uint32_t>(s.prompt.size());
    EXPECT_TRUE(session_.rings->publish_accepted(s.cookie, SequenceId(s.cookie), prompt_tokens,
                                                 s.fields.max_tokens));
    session_.running.push_back(
        {s.cookie, std::move(script), prompt_tokens, s.want_logprobs(), s.fields.top_logprobs});
  }
  void on_refused(uint64_t cookie, const Error& error) override {
    EXPECT_TRUE(session_.rings->publish_error(cookie, error));
  }
  void on_cancel(uint64_t cookie) override {
    ++server_.cancels_;
    finish(cookie, ipc::FinishReason::kCancelled);
  }
  void on_delivered(uint64_t cookie, uint32_t tokens, bool truncate) override {
    if (!truncate) return;
    server_.delivered_ = tokens;
    ++server_.truncations_;
    finish(cookie, ipc::FinishReason::kStop);
  }
  // Only less urgent than now, as for a user without privilege who has nice 0.
  void on_renice(const ipc::Renice& renice, const Result<void>& checked) override {
    EXPECT_TRUE(checked.ok());
    if (server_.options_.mute_renice) return;
    ++server_.renices_;
    Result<void> outcome;
    if (renice.nice < 0) {
      outcome = Error(ErrorCode::kPermissionDenied, std::string(1100, 'n') + "o");
    }
    EXPECT_TRUE(session_.rings->publish_reniced(renice, outcome));
  }
  // Whole pages are cached, but of a prompt that begins with 0; of one that begins with 1 there are
  // too many.
  void on_pin(const ipc::Pin& pin, const Result<void>& checked) override {
    EXPECT_TRUE(checked.ok()) << checked.error().message();
    if (server_.options_.mute_pins) return;
    Result<uint32_t> tokens(static_cast<uint32_t>(pin.prompt.size() / kPageTokens * kPageTokens));
    if (pin.prompt.empty()) {
      tokens = server_.pinned_tokens_.exchange(0);
    } else if (pin.prompt[0] == 0) {
      tokens = Error(ErrorCode::kNotFound, "run it first");
    } else if (pin.prompt[0] == 1) {
      tokens = Error(ErrorCode::kResourceExhausted, std::string(1100, 'p') + "q");
    } else {
      server_.pinned_tokens_ += *tokens;
    }
    EXPECT_TRUE(session_.rings->publish_pinned(pin.cookie, tokens));
  }

 private:
  void finish(uint64_t cookie, ipc::FinishReason reason) {
    auto& running = session_.running;
    const auto it = std::find_if(running.begin(), running.end(),
                                 [&](const Running& r) { return r.cookie == cookie; });
    if (it == running.end()) return;
    ipc::FinishedEvent finished;
    finished.reason = reason;
    finished.prompt_tokens = it->prompt_tokens;
    finished.cached_tokens = it->script.cached_tokens;
    finished.completion_tokens = it->sent;
    EXPECT_TRUE(session_.rings->publish_finished(cookie, finished));
    running.erase(it);
  }

  FakeServer& server_;
  Session& session_;
};

FakeServer::FakeServer(Handler handler, Options options)
    : handler_(std::move(handler)), options_(std::move(options)) {
  char name[] = "/tmp/inferd-client-XXXXXX";
  EXPECT_NE(mkdtemp(name), nullptr);
  dir_ = name;
  path_ = options_.path.empty() ? dir_ + "/inferd.sock" : options_.path;
  listener_ = std::move(ipc::listen_at(path_, 16)).value();
  wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  const std::vector<uint8_t> tables = test_tables();
  tables_bytes_ = tables.size();
  tables_ = std::move(ipc::publish_immutable("tables", std::as_bytes(std::span(tables)))).value();
  thread_ = std::thread([this] { run(); });
}

FakeServer::~FakeServer() {
  kill();
  unlink(path_.c_str());
  rmdir(dir_.c_str());
}

void FakeServer::kill() {
  stop_ = true;
  const uint64_t one = 1;
  EXPECT_EQ(write(wake_.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
  if (thread_.joinable()) thread_.join();
  sessions_.clear();
  sessions_count_ = 0;
  listener_.reset();
}

void FakeServer::end_sessions(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    last_word_ = error;
  }
  const uint64_t one = 1;
  EXPECT_EQ(write(wake_.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
}

std::vector<TokenId> FakeServer::last_prompt() const {
  const std::lock_guard lock(mutex_);
  return last_prompt_;
}
ipc::SubmitRecord FakeServer::last_fields() const {
  const std::lock_guard lock(mutex_);
  return last_fields_;
}
std::string FakeServer::last_client_name() const {
  const std::lock_guard lock(mutex_);
  return last_client_name_;
}

std::string FakeServer::last_cache_domain() const {
  const std::lock_guard lock(mutex_);
  return last_cache_domain_;
}

void FakeServer::run() {
  while (!stop_) {
    std::vector<pollfd> pollers = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    bool busy = false;
    uint64_t running = 0;
    for (const auto& session : sessions_) {
      running += session->running.size();
      for (const Running& r : session->running) {
        busy |= r.sent < r.script.ids.size() || !r.script.hold;
      }
      if (options_.drain && !session->rings->prepare_sleep()) busy = true;
      pollers.push_back({session->socket.get(), POLLIN, 0});
      pollers.push_back({session->rings->submission_bell_fd(), POLLIN, 0});
    }
    running_count_ = running;
    sessions_count_ = sessions_.size();
    poll(pollers.data(), pollers.size(), busy ? 0 : 1000);
    if ((pollers[1].revents & POLLIN) != 0) {
      uint64_t count;
      EXPECT_EQ(read(wake_.get(), &count, sizeof(count)), ssize_t{sizeof(count)});
    }
    std::erase_if(sessions_, [this](const auto& session) { return !serve(*session); });
    if ((pollers[0].revents & POLLIN) != 0) accept_one();
    const std::lock_guard lock(mutex_);
    last_word_.reset();
  }
}

void FakeServer::accept_one() {
  UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return;
  std::vector<std::byte> buffer(ipc::kHandshakeBytesMax);
  auto message = ipc::receive_message(socket.get(), buffer, 0, true);
  if (!message.ok() || message->status != ipc::SocketStatus::kDone) return;
  auto session = std::make_unique<Session>();
  if (options_.mute) {
    static_cast<void>(socket.release());  // leaked on purpose: closing it would be an answer
    return;
  }
  auto hello = ipc::decode_hello(std::span(buffer).first(message->bytes));
  const Error* refusal = options_.refuse ? &*options_.refuse : nullptr;
  if (!hello.ok()) refusal = &hello.error();
  const auto features = hello.ok() ? ipc::agree_features(*hello, options_.features, 0)
                                   : Result<uint64_t>(hello.error());
  if (hello.ok() && !features.ok()) refusal = &features.error();
  if (refusal != nullptr) {
    EXPECT_TRUE(ipc::send_message(socket.get(), ipc::encode_refusal(*refusal)).ok());
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    last_client_name_ = hello->client_name;
    last_cache_domain_ = hello->cache_domain;
  }
  ipc::Welcome welcome;
  welcome.features = *features;
  welcome.session_id = sessions_.size() + 1;
  welcome.geometry = options_.geometry;
  welcome.text_tables_bytes = tables_bytes_;
  welcome.model = {options_.model_name, "llama", "F32", options_.numerics_id, 1000, kVocabulary,
                   8192, -1, kEos, true};
  welcome.models = options_.other_models;
  welcome.models.insert(welcome.models.begin() + welcome.models.size() / 2, welcome.model);
  welcome.daemon_version = "test";
  session->rings =
      std::move(ipc::ServerSession::create(options_.geometry, SessionId(welcome.session_id),
                                           welcome.features))
          .value();
  const auto fds = session->rings->client_fds(tables_.get());
  EXPECT_TRUE(ipc::send_message(socket.get(), ipc::encode_welcome(welcome), fds).ok());
  session->rings->close_client_fds();
  session->socket = std::move(socket);
  sessions_.push_back(std::move(session));
}

// One turn for one session; false if it is over.
bool FakeServer::serve(Session& session) {
  std::byte buffer[64];
  auto message = ipc::receive_message(session.socket.get(), buffer, 0, false);
  if (!message.ok() || message->status != ipc::SocketStatus::kWouldBlock) return false;
  ipc::clear_doorbell(session.rings->submission_bell_fd());
  session.rings->wake();
  if (options_.drain) {
    Visitor visitor(*this, session);
    const auto outcome = session.rings->drain(16, scratch_, visitor);
    EXPECT_FALSE(outcome.broken) << outcome.broken->message();
  }
  std::erase_if(session.running, [&](Running& running) { return step(session, running); });
  std::optional<Error> last_word;
  {
    const std::lock_guard lock(mutex_);
    last_word = last_word_;
  }
  if (last_word) session.rings->publish_last_word(last_word->code(), last_word->message());
  bells_ += session.rings->flush(*doorbells_) ? 1 : 0;
  return !last_word;
}

// The next tokens of one sequence, or its end. True if it is over.
bool FakeServer::step(Session& session, Running& r) {
  const Script& script = r.script;
  if (script.step_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(script.step_us));
  if (r.sent < script.ids.size()) {
    const size_t count = std::min<size_t>(
        {script.tokens_per_step, script.ids.size() - r.sent, ipc::kTokensPerRecordMax});
    std::vector<float> logprobs;
    std::vector<ipc::LogprobEntry> top;
    for (size_t i = 0; r.logprobs && i < count; ++i) {
      const auto index = static_cast<int32_t>(r.sent + i);
      logprobs.push_back(-0.5f * static_cast<float>(index));
      for (uint32_t k = 0; k < r.top; ++k) {
        top.push_back(
            {static_cast<int32_t>(k), -static_cast<float>(index) - 0.25f * static_cast<float>(k)});
      }
    }
    const ipc::TokensEvent event = {
        r.sent, script.cached_tokens, std::span(script.ids).subspan(r.sent, count), logprobs, top,
        r.top};
    if (session.rings->publish_tokens(r.cookie, event)) r.sent += static_cast<uint32_t>(count);
    return false;
  }
  if (script.hold) return false;
  if (script.error) return session.rings->publish_error(r.cookie, *script.error);
  ipc::FinishedEvent finished;
  finished.reason = script.reason;
  finished.prompt_tokens = r.prompt_tokens;
  finished.cached_tokens = script.cached_tokens;
  finished.completion_tokens = r.sent;
  finished.computed_tokens = script.computed_tokens;
  finished.preemptions = script.preemptions;
  finished.queue_ns = script.queue_ns;
  return session.rings->publish_finished(r.cookie, finished);
}

}  // namespace inferd::test
