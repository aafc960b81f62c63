// Several prompts at once in one thread, in C++ with Boost.Asio: a coroutine for each, and a time
// limit for all. usage: example-side-by-side SECONDS "PROMPT" ...
#include <inferd/asio.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <stop_token>

namespace {

namespace asio = boost::asio;
using namespace inferd;

asio::awaitable<void> answer(client::Connection& connection, client::AsyncReader& reader,
                             std::stop_token stop, int index, const char* prompt) {
  client::Sampling sampling;
  sampling.max_tokens = 16;
  auto sequence = connection.open(client::Prompt::text(prompt), sampling);
  const auto guard = sequence.cancel_on(stop);
  while (const auto event = co_await reader.async_next(sequence, asio::use_awaitable)) {
    if (!event->text.empty()) std::cout << index << ": " << event->text << std::endl;
  }
  std::cout << index << ": [" << inferd_finish_name(sequence.finish()) << "]\n";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: example-side-by-side SECONDS PROMPT...\n";
    return 2;
  }
  asio::io_context context;
  client::Connection connection;
  client::AsyncReader reader(context, connection);
  std::stop_source stop;
  asio::steady_timer limit(context,
                           std::chrono::milliseconds(std::lround(1000 * std::atof(argv[1]))));
  limit.async_wait([&](boost::system::error_code cancelled) {
    if (!cancelled) stop.request_stop();
  });
  int running = argc - 2, result = 0;
  for (int i = 2; i < argc; ++i) {
    const auto done = [&](std::exception_ptr error) {
      if (--running == 0) limit.cancel();
      try {
        if (error) std::rethrow_exception(error);
      } catch (const client::Error& e) {
        std::cerr << "example-side-by-side: " << e.what() << '\n';
        result = 1;
      }
    };
    asio::co_spawn(context, answer(connection, reader, stop.get_token(), i - 2, argv[i]), done);
  }
  context.run();
  return result;
} catch (const inferd::client::Error& error) {
  std::cerr << "example-side-by-side: " << error.what() << '\n';
  return 1;
}
