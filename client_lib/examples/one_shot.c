/* One prompt, one answer, in C.
 * usage: example-one-shot "PROMPT" */
#include <inferd/inferd.h>
#include <stdio.h>
#include <string.h>

static int fail(inferd_error *error) {
  fprintf(stderr, "example-one-shot: %s\n", inferd_error_message(error));
  inferd_error_free(error);
  return 1;
}

int main(int argc, char **argv) {
  inferd_connection *connection = NULL;
  inferd_sequence *sequence = NULL;
  inferd_error *error = NULL;
  inferd_prompt prompt;
  inferd_sampling sampling;
  inferd_event event;
  inferd_usage usage = {.struct_bytes = sizeof(usage)};
  inferd_status status;
  int result = 0;

  if (argc != 2) {
    fprintf(stderr, "usage: %s PROMPT\n", argv[0]);
    return 2;
  }
  if (inferd_connect(NULL, &connection, &error) != INFERD_OK) return fail(error);

  inferd_prompt_init(&prompt);
  prompt.text = argv[1];
  prompt.text_bytes = strlen(argv[1]);
  prompt.text_flags = INFERD_TOKENIZE_BOS;
  inferd_sampling_init(&sampling);
  sampling.max_tokens = 32;
  if (inferd_open(connection, &prompt, &sampling, &sequence, &error) != INFERD_OK) {
    inferd_disconnect(connection);
    return fail(error);
  }

  inferd_event_init(&event);
  while ((status = inferd_next(sequence, -1, &event, &error)) == INFERD_OK) {
    fwrite(event.text, 1, event.text_bytes, stdout);
    fflush(stdout);
  }
  putchar('\n');
  if (status != INFERD_NOT_FOUND) {
    result = fail(error);
  } else if (inferd_get_usage(sequence, &usage, NULL) == INFERD_OK) {
    fprintf(stderr, "%u prompt tokens (%u cached), %u generated, first after %.1f ms\n",
            usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, usage.ttft_ms);
  }
  inferd_close(sequence);
  inferd_disconnect(connection);
  return result;
}
