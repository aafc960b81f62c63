/* Several prompts at once in one event loop, in C: their answers come side by side.
 * usage: example-many "PROMPT" "PROMPT" ... */
#include <inferd/inferd.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define PROMPTS_MAX 64

static int fail(const char *what, inferd_error *error) {
  fprintf(stderr, "example-many: %s: %s\n", what, inferd_error_message(error));
  inferd_error_free(error);
  return 1;
}

/* Prints what has arrived for sequence number `index`. Returns 0 if it goes on, 1 at its end, -1 on error. */
static int drain(inferd_sequence *sequence, int index) {
  inferd_event event;
  inferd_error *error = NULL;
  inferd_event_init(&event);
  for (;;) {
    inferd_status status = inferd_next(sequence, 0, &event, &error);
    if (status == INFERD_TIMED_OUT) return 0;
    if (status == INFERD_NOT_FOUND) return 1;
    if (status != INFERD_OK) {
      fail("answer", error);
      return -1;
    }
    if (event.text_bytes > 0) printf("%d: %s\n", index, event.text);
    if (event.finish != INFERD_FINISH_NONE) {
      printf("%d: [%s]\n", index, inferd_finish_name(event.finish));
    }
  }
}

int main(int argc, char **argv) {
  inferd_connection *connection = NULL;
  inferd_sequence *sequences[PROMPTS_MAX] = {NULL};
  inferd_error *error = NULL;
  inferd_sampling sampling;
  struct pollfd poller;
  int count = argc - 1, running = 0, result = 0, i;

  if (count < 1 || count > PROMPTS_MAX) {
    fprintf(stderr, "usage: %s PROMPT... (at most %d)\n", argv[0], PROMPTS_MAX);
    return 2;
  }
  if (inferd_connect(NULL, &connection, &error) != INFERD_OK) return fail("connect", error);
  inferd_sampling_init(&sampling);
  sampling.max_tokens = 16;
  for (i = 0; i < count; ++i) {
    inferd_prompt prompt;
    inferd_prompt_init(&prompt);
    prompt.text = argv[i + 1];
    prompt.text_bytes = strlen(argv[i + 1]);
    prompt.text_flags = INFERD_TOKENIZE_BOS;
    if (inferd_open(connection, &prompt, &sampling, &sequences[i], &error) != INFERD_OK) {
      result = fail("submit", error);
    } else {
      ++running;
    }
  }

  poller.fd = inferd_connection_fd(connection);
  poller.events = POLLIN;
  while (running > 0) {
    for (i = 0; i < count; ++i) {
      int state = sequences[i] == NULL ? 0 : drain(sequences[i], i);
      if (state == 0) continue;
      if (state < 0) result = 1;
      inferd_close(sequences[i]);
      sequences[i] = NULL;
      --running;
    }
    fflush(stdout);
    if (running == 0) break;
    poll(&poller, 1, -1);
    inferd_connection_clear(connection);
  }
  inferd_disconnect(connection);
  return result;
}
