#include <inferd/inferd.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const char *text = "One, two, three,";
  inferd_connection *connection = NULL;
  inferd_sequence *answer = NULL;
  inferd_error *error = NULL;
  inferd_prompt prompt;
  inferd_sampling sampling;
  inferd_event event;
  int32_t *ids = NULL;
  size_t count = 0, i;

  inferd_prompt_init(&prompt);
  inferd_sampling_init(&sampling);
  sampling.max_tokens = 6;
  inferd_event_init(&event);
  if (inferd_connect(NULL, &connection, &error) == INFERD_OK &&
      inferd_tokenize(connection, text, strlen(text), 0, &ids, &count, &error) == INFERD_OK) {
    prompt.ids = ids; /* as they are: no token is added before them */
    prompt.ids_count = count;
    if (inferd_open(connection, &prompt, &sampling, &answer, &error) == INFERD_OK) {
      while (inferd_next(answer, -1, &event, &error) == INFERD_OK) {
        for (i = 0; i < event.ids_count; ++i) printf("%d ", event.ids[i]);
      }
      puts("");
    }
  }
  if (error != NULL) fprintf(stderr, "token-ids: %s\n", inferd_error_message(error));
  inferd_free(ids);
  inferd_close(answer);
  inferd_disconnect(connection);
  return error == NULL ? 0 : 1;
}
