#include <inferd/inferd.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const char *text = "The capital of France is";
  inferd_connection *connection = NULL;
  inferd_sequence *answer = NULL;
  inferd_error *error = NULL;
  inferd_prompt prompt;
  inferd_sampling sampling;
  inferd_event event;

  inferd_prompt_init(&prompt);
  prompt.text = text;
  prompt.text_bytes = strlen(text);
  prompt.text_flags = INFERD_TOKENIZE_BOS;
  inferd_sampling_init(&sampling);
  sampling.max_tokens = 12;
  inferd_event_init(&event);

  if (inferd_connect(NULL, &connection, &error) == INFERD_OK &&
      inferd_open(connection, &prompt, &sampling, &answer, &error) == INFERD_OK) {
    while (inferd_next(answer, -1, &event, &error) == INFERD_OK) {
      fwrite(event.text, 1, event.text_bytes, stdout);
      fflush(stdout);
    }
    puts("");
  }
  if (error != NULL) fprintf(stderr, "first-answer: %s\n", inferd_error_message(error));
  inferd_close(answer);
  inferd_disconnect(connection);
  return error == NULL ? 0 : 1;
}
