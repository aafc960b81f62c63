/* inferd client library, C interface.
 *
 * A program connects to the daemon, opens sequences (a prompt and how to continue it) and reads events
 * (pieces of text, token ids, log probabilities) until each one ends. Text work happens in the caller's
 * process, over tables that the daemon shares read-only; tokens travel over shared memory.
 *
 * Conventions
 * - Functions that can fail return an inferd_status (0 is success) and, if `error` is not NULL, store there
 *   an error object that the caller frees with inferd_error_free(). On success *error is set to NULL.
 * - Handles are opaque. Whoever opened one closes it. Closing a connection ends its sequences. A NULL handle is
 *   refused with INFERD_INVALID_ARGUMENT (inferd_connection_fd(): -1); closing and cancelling NULL does nothing.
 * - Strings are UTF-8. Those returned belong to the object that returned them, unless said otherwise.
 * - Threads: a connection and its sequences may be used by several threads; at most one thread at a time may
 *   wait for events of one sequence. No function takes a lock for longer than a few microseconds, except
 *   those marked "blocks". The library starts no thread, installs no signal handler, and keeps no global state.
 * - After fork() the child opens connections of its own: with the parent's, functions return
 *   INFERD_INVALID_ARGUMENT there (inferd_connection_fd() -1), but for those on text and model, which work.
 *   Closing them in the child frees its memory and descriptors, and leaves the parent's session alone.
 * - No function raises SIGPIPE, whoever is gone.
 * - Strings with a size argument need not be NUL-terminated.
 * - Structures carry the size that the caller was compiled with. Prepare each with its inferd_..._init()
 *   (from a language without C headers: inferd_..._init_sized() with the size that it uses).
 */
#ifndef INFERD_INFERD_H
#define INFERD_INFERD_H

#include <stddef.h>
#include <stdint.h>

/* Marks what the library exports. */
#if defined(__GNUC__)
#define INFERD_API __attribute__((visibility("default")))
#else
#define INFERD_API
#endif

/* No function throws, and C++ is told so. */
#ifdef __cplusplus
#define INFERD_NOEXCEPT noexcept
extern "C" {
#else
#define INFERD_NOEXCEPT
#endif

/* Version of this interface. Structures grow at the end only; each carries its size. */
#define INFERD_API_VERSION 1

/* "0.1.0": the version of the library in use. */
INFERD_API const char *inferd_version(void) INFERD_NOEXCEPT;

/* ---- errors ---- */
/* What a function came to. Of each kind of error, what to do is in its sentence. */
typedef enum inferd_status {
  INFERD_OK = 0,                 /* it worked */
  INFERD_INVALID_ARGUMENT = 1,   /* what was asked for makes no sense */
  INFERD_NOT_FOUND = 2,          /* no such model, domain or sequence; or nothing more comes */
  INFERD_PERMISSION_DENIED = 3,  /* for others than this user, or a limit of the administrator's */
  INFERD_RESOURCE_EXHAUSTED = 4, /* too long or too many, now or ever */
  INFERD_UNAVAILABLE = 5,        /* no daemon, or it is gone: connect again */
  INFERD_DATA_CORRUPT = 6,       /* a file or message is not what it should be */
  INFERD_UNSUPPORTED = 7,        /* this library or daemon cannot do it; another release may */
  INFERD_CANCELLED = 8,          /* the client or an administrator ended it */
  INFERD_TIMED_OUT = 9,          /* a deadline passed */
  INFERD_IO = 10,                /* the operating system failed */
  INFERD_INTERNAL = 11,          /* a fault of inferd itself */
  INFERD_PROTOCOL = 12,          /* library and daemon misunderstand each other */
  INFERD_VERSION_MISMATCH = 13   /* two releases, or two models, that do not go together */
} inferd_status;

/* Why a function failed. Any thread, one at a time. */
typedef struct inferd_error inferd_error;
/* INFERD_OK for NULL. */
INFERD_API inferd_status inferd_error_status(const inferd_error *error) INFERD_NOEXCEPT;
/* A sentence that says what is wrong and what to do. Lives as long as the error object. */
INFERD_API const char *inferd_error_message(const inferd_error *error) INFERD_NOEXCEPT;
/* NULL is allowed. */
INFERD_API void inferd_error_free(inferd_error *error) INFERD_NOEXCEPT;
/* "not found", ...; a static string. */
INFERD_API const char *inferd_status_name(inferd_status status) INFERD_NOEXCEPT;

/* ---- connection ---- */
/* A session with the daemon, for one of its models. */
typedef struct inferd_connection inferd_connection;

/* Where to connect, and as what. Set by inferd_connect_options_init(), then changed. */
typedef struct inferd_connect_options {
  size_t struct_bytes;     /* sizeof(inferd_connect_options); set by inferd_connect_options_init */
  const char *socket_path; /* NULL: $INFERD_SOCKET, $XDG_RUNTIME_DIR/inferd/inferd.sock, /run/inferd/inferd.sock */
  const char *model;       /* model name; NULL or "": the daemon's first model */
  const char *client_name; /* shown by `inferctl ps`; NULL: the program's short name */
  uint32_t timeout_ms;     /* for the handshake; 0: 5000 */
  uint32_t spin_us;        /* spin for so long before sleeping in a wait; 0: do not spin */
  /* A cache domain that the administrator opened for several users: prompts that begin alike are computed
   * once for all who ask for it, who can therefore measure what the others' prompts begin with. NULL or "":
   * only this user's own. Refused with INFERD_PERMISSION_DENIED or INFERD_NOT_FOUND. */
  const char *cache_domain;
} inferd_connect_options;
/* Sets the first struct_bytes bytes to the defaults. */
INFERD_API void inferd_connect_options_init_sized(inferd_connect_options *options, size_t struct_bytes) INFERD_NOEXCEPT;
/* Sets the defaults. */
static inline void inferd_connect_options_init(inferd_connect_options *options) INFERD_NOEXCEPT {
  inferd_connect_options_init_sized(options, sizeof(*options));
}

/* Connects and shakes hands. Blocks up to timeout_ms. `options` may be NULL for the defaults. */
INFERD_API inferd_status inferd_connect(const inferd_connect_options *options, inferd_connection **connection,
                                        inferd_error **error) INFERD_NOEXCEPT;
/* Connects again as `lost` had been connected, and tries for up to timeout_ms while nobody answers: a daemon
 * that was restarted may be loading its model. Blocks. `lost` stays open, so that its sequences can be resumed
 * (inferd_resume()); disconnect it afterwards. Any thread. Errors: those of inferd_connect(). */
INFERD_API inferd_status inferd_reconnect(const inferd_connection *lost, uint32_t timeout_ms,
                                          inferd_connection **connection, inferd_error **error) INFERD_NOEXCEPT;
/* Cancels what still runs, and frees everything, its sequences' handles included. NULL is allowed. */
INFERD_API void inferd_disconnect(inferd_connection *connection) INFERD_NOEXCEPT;

/* A model of the daemon's. */
typedef struct inferd_model_info {
  size_t struct_bytes;      /* sizeof(inferd_model_info); set by the caller */
  const char *name;         /* as the configuration or its file names it */
  const char *architecture; /* "llama" */
  const char *quantization; /* of most weights: "Q4_1" */
  const char *numerics_id;  /* equal ids give equal results, to the last bit */
  uint64_t parameters;      /* how many weights it has */
  uint32_t vocabulary;      /* token ids go from 0 to one less */
  uint32_t context_tokens; /* longest sequence, prompt and answer together, that the daemon accepts */
  int32_t bos_token;       /* -1: none */
  int32_t eos_token;       /* -1: none */
  int has_chat_template;   /* whether prompts can be given as chat_json */
  int in_use;              /* whether the connection uses it; 0 for others of the daemon's models */
} inferd_model_info;
/* The model that the connection uses. Strings live as long as the connection. Any thread. Set info->struct_bytes
 * first. */
INFERD_API inferd_status inferd_get_model_info(const inferd_connection *connection, inferd_model_info *info,
                                               inferd_error **error) INFERD_NOEXCEPT;
/* One of the models that the daemon offered when this connection was opened, by its number from 0: those that
 * inferd_connect_options.model can name. INFERD_OK with the model; INFERD_NOT_FOUND (no error object) if there are
 * not so many. Of a daemon that is older than the library, the connection's own model is the only one. Does not
 * block. Strings live as long as the connection. Any thread. Set info->struct_bytes first. */
INFERD_API inferd_status inferd_get_model_at(const inferd_connection *connection, size_t index,
                                             inferd_model_info *info, inferd_error **error) INFERD_NOEXCEPT;

/* A descriptor that polls readable when events may be waiting for any sequence of the connection, for use
 * in an event loop: on readable, call inferd_connection_clear(), then inferd_next() with timeout 0 on the
 * sequences until each returns INFERD_TIMED_OUT. Owned by the connection; do not read or close it. */
INFERD_API int inferd_connection_fd(const inferd_connection *connection) INFERD_NOEXCEPT;
/* See inferd_connection_fd(). */
INFERD_API void inferd_connection_clear(inferd_connection *connection) INFERD_NOEXCEPT;

/* ---- text, without a sequence ---- */
#define INFERD_TOKENIZE_SPECIAL 1u /* names of control tokens in the text become those tokens */
#define INFERD_TOKENIZE_BOS 2u     /* begin as the model's prompts begin (BOS where the model wants it) */

/* *ids is an array of *count ids that the caller frees with inferd_free(). Any thread. */
INFERD_API inferd_status inferd_tokenize(const inferd_connection *connection, const char *text, size_t text_bytes,
                                         uint32_t flags, int32_t **ids, size_t *count,
                                         inferd_error **error) INFERD_NOEXCEPT;
/* *text is NUL-terminated (its size in *text_bytes) and freed by the caller with inferd_free(). Bytes that
 * are no UTF-8 come as they are. With special != 0, control tokens are written out by name. Any thread. */
INFERD_API inferd_status inferd_detokenize(const inferd_connection *connection, const int32_t *ids, size_t count,
                                           int special, char **text, size_t *text_bytes,
                                           inferd_error **error) INFERD_NOEXCEPT;
/* Renders chat messages to prompt ids. `chat_json` as for inferd_prompt.chat_json. Freed with inferd_free(). */
INFERD_API inferd_status inferd_render_chat(const inferd_connection *connection, const char *chat_json,
                                            size_t chat_json_bytes, int32_t **ids, size_t *count,
                                            inferd_error **error) INFERD_NOEXCEPT;
/* Frees what a function above says is to be freed with it. NULL is allowed. */
INFERD_API void inferd_free(void *memory) INFERD_NOEXCEPT;

/* ---- sequences ---- */
/* A prompt and its answer as it comes. */
typedef struct inferd_sequence inferd_sequence;

/* Exactly one of text, chat_json, ids is given. */
typedef struct inferd_prompt {
  size_t struct_bytes; /* sizeof(inferd_prompt); set by inferd_prompt_init */
  const char *text; /* tokenized as plain text (control tokens only with INFERD_TOKENIZE_SPECIAL in text_flags) */
  size_t text_bytes;   /* of text, without a terminator */
  uint32_t text_flags; /* INFERD_TOKENIZE_* */
  /* JSON: an array of {"role", "content", ...} messages, or an object {"messages": [...], "tools": [...],
   * "add_generation_prompt": true, any further variable of the template}. Rendered by the model's own
   * template; only what the template writes can become control tokens. */
  const char *chat_json;
  size_t chat_json_bytes; /* of chat_json, without a terminator */
  const int32_t *ids;     /* [ids_count] tokens, taken as they are */
  size_t ids_count;       /* how many */
} inferd_prompt;
/* Sets the first struct_bytes bytes to an empty prompt. */
INFERD_API void inferd_prompt_init_sized(inferd_prompt *prompt, size_t struct_bytes) INFERD_NOEXCEPT;
/* Sets an empty prompt. */
static inline void inferd_prompt_init(inferd_prompt *prompt) INFERD_NOEXCEPT {
  inferd_prompt_init_sized(prompt, sizeof(*prompt));
}

/* Makes one token likelier or less likely. */
typedef struct inferd_logit_bias {
  int32_t token; /* its id */
  float bias; /* added to the logit; -INFINITY forbids the token */
} inferd_logit_bias;

#define INFERD_UNLIMITED_TOKENS UINT32_MAX /* as many as fit */

/* How urgent a sequence is; within each, nice says more. */
typedef enum inferd_priority {
  INFERD_PRIORITY_INTERACTIVE = 0, /* somebody waits for each token */
  INFERD_PRIORITY_BATCH = 1,       /* somebody waits for the end */
  INFERD_PRIORITY_IDLE = 2         /* with what nobody else wants */
} inferd_priority;

/* How to continue a prompt, and how urgently. */
typedef struct inferd_sampling {
  size_t struct_bytes;      /* sizeof(inferd_sampling); set by inferd_sampling_init */
  float temperature;        /* 0: greedy. Default 0 */
  uint32_t top_k;           /* 0: off */
  float top_p;              /* 1: off */
  float min_p;              /* 0: off */
  float repetition_penalty; /* 1: off */
  float presence_penalty;   /* 0: off */
  float frequency_penalty;  /* 0: off */
  uint32_t penalty_last_n;  /* window of the penalties, in tokens. Default 64 */
  uint64_t seed;            /* equal seeds give equal tokens */
  uint32_t branch;          /* several samples of one prompt: number them, they draw apart */
  const inferd_logit_bias *logit_bias; /* [logit_bias_count] */
  size_t logit_bias_count; /* at most 256 */
  const char *const *stop; /* strings that end the answer; not part of it */
  size_t stop_count;       /* at most 16 */
  uint32_t max_tokens;     /* INFERD_UNLIMITED_TOKENS (default): up to the context's end */
  int logprobs;            /* report the log probability of each token */
  uint32_t top_logprobs;   /* and of so many alternatives, at most 20 */
  int ignore_eos;          /* go on past the model's end-of-answer tokens */
  uint32_t priority;       /* inferd_priority. Default INFERD_PRIORITY_INTERACTIVE */
  int32_t nice;            /* within the priority, -20 (first) to 19; below 0 only for root and the daemon's user */
  uint32_t deadline_ms;    /* ends with INFERD_TIMED_OUT if it has not started by then; 0: it waits */
  int no_store;            /* take nothing from the prefix cache and leave nothing in it */
} inferd_sampling;
/* Sets the first struct_bytes bytes to the defaults. */
INFERD_API void inferd_sampling_init_sized(inferd_sampling *sampling, size_t struct_bytes) INFERD_NOEXCEPT;
/* Sets the defaults. */
static inline void inferd_sampling_init(inferd_sampling *sampling) INFERD_NOEXCEPT {
  inferd_sampling_init_sized(sampling, sizeof(*sampling));
}

/* Submits a sequence. Does not block, unless the submission ring is full (then up to a second). Strings and
 * arrays are copied. `sampling` may be NULL for the defaults. Any thread.
 * A request that can never fit is refused here or by the first event, with the figure that it exceeds. */
INFERD_API inferd_status inferd_open(inferd_connection *connection, const inferd_prompt *prompt,
                                     const inferd_sampling *sampling, inferd_sequence **sequence,
                                     inferd_error **error) INFERD_NOEXCEPT;
/* A second sequence that goes on from where `parent` is: from its prompt and what inferd_next() has delivered
 * of its answer, then `more` (text or ids; NULL: nothing more). The parent goes on unharmed. It may run, or
 * have ended, but must not be closed. While it runs, the two share the memory of all that they have in
 * common, and nothing of it is computed again but the last token. `sampling` as for inferd_open(): to draw
 * apart from the parent, a fork needs another branch (or seed). Its usage counts all tokens that it begins
 * with as its prompt. Several samples of one prompt: inferd_open(), then forks before the first
 * inferd_next(). Does not block, unless the submission ring is full. Any thread. */
INFERD_API inferd_status inferd_sequence_fork(const inferd_sequence *parent, const inferd_prompt *more,
                                              const inferd_sampling *sampling, inferd_sequence **sequence,
                                              inferd_error **error) INFERD_NOEXCEPT;
/* `count` samples of one prompt, which is computed and kept once: sequences[i] draws with branch
 * sampling->branch + i. All are opened, or none. Close each by itself. Does not block, unless the submission ring
 * is full. Any thread. */
INFERD_API inferd_status inferd_open_samples(inferd_connection *connection, const inferd_prompt *prompt,
                                             const inferd_sampling *sampling, size_t count,
                                             inferd_sequence **sequences, inferd_error **error) INFERD_NOEXCEPT;
/* How likely a given continuation is. The sequence's events bring its tokens as if the model had generated them,
 * each with the natural logarithm of its probability after all that is before it; it then ends with
 * INFERD_FINISH_LENGTH. The sum of them is that of the whole continuation. The prompt is taken from the prefix
 * cache as ever; the bits do not depend on that. Of `sampling` (NULL: the defaults) only top_logprobs, priority,
 * nice, deadline_ms and no_store matter: probabilities are those before temperature, penalties and biases.
 * A continuation given as text is tokenized by itself; give ids to choose where the prompt's tokens end. Needs
 * at least one token before and in the continuation. Does not block, unless the submission ring is full. Any
 * thread. Errors: as inferd_open(); INFERD_UNSUPPORTED from an older daemon. */
INFERD_API inferd_status inferd_score(inferd_connection *connection, const inferd_prompt *prompt,
                                      const inferd_prompt *continuation, const inferd_sampling *sampling,
                                      inferd_sequence **sequence, inferd_error **error) INFERD_NOEXCEPT;
/* The rest of a sequence that was lost with its connection (inferd_next() returned INFERD_UNAVAILABLE), on another
 * connection, to a daemon with the same model. Read `lost` to its error first. What comes is what would have come:
 * the tokens and texts of both together are those of one uninterrupted sequence, to the last bit of every log
 * probability. The daemon gets the prompt and what was delivered, and computes what it has not cached. The
 * usage counts what was delivered before as prompt. `lost` and its connection are to be closed afterwards. Does
 * not block, unless the submission ring is full. Any thread, while none reads `lost`. Errors:
 * INFERD_INVALID_ARGUMENT if it was not lost; INFERD_VERSION_MISMATCH if another model answers, or one whose
 * results may differ in the last bits (numerics_id of inferd_model_info). */
INFERD_API inferd_status inferd_resume(inferd_connection *connection, inferd_sequence *lost,
                                       inferd_sequence **sequence, inferd_error **error) INFERD_NOEXCEPT;
/* Changes how urgent a sequence is that waits or runs: inferd_priority, and nice (-20 to 19) within it. To make it
 * more urgent takes root or the daemon's user. Blocks for the daemon's answer, which comes between two steps (up
 * to ten seconds). Any thread. Errors: INFERD_NOT_FOUND if it has ended, INFERD_PERMISSION_DENIED,
 * INFERD_UNSUPPORTED from an older daemon. */
INFERD_API inferd_status inferd_renice(inferd_sequence *sequence, uint32_t priority, int32_t nice,
                                       inferd_error **error) INFERD_NOEXCEPT;
/* Pins a prompt: what is cached of its whole pages (16 tokens each), in the cache domain that the connection uses,
 * leaves memory and disk after all that is not pinned. So a long preamble stays between rare requests. It changes no
 * answer. *pinned_tokens (NULL: not told) is how many of the prompt's tokens are pinned then, from its beginning on.
 * A pin is its user's, not the connection's: it lasts until inferd_unpin(), until the cache is flushed, or until the
 * daemon ends (with [memory] disk and an orderly end, until the next one does). Blocks for the daemon's answer, which
 * comes between two steps (up to ten seconds). Any thread. Errors: INFERD_NOT_FOUND if nothing of it is cached: run
 * it first (max_tokens 1 is enough); INFERD_RESOURCE_EXHAUSTED where the user would have more pages pinned than
 * [limits] user_pinned_pages allows, and nothing is pinned then; INFERD_UNSUPPORTED from an older daemon. */
INFERD_API inferd_status inferd_pin(inferd_connection *connection, const inferd_prompt *prompt,
                                    uint32_t *pinned_tokens, inferd_error **error) INFERD_NOEXCEPT;
/* Ends all pins of the connection's user, whoever of their programs made them. What stands before another user's
 * pin (in a shared domain) stays pinned. *unpinned_tokens (NULL: not told) is how many tokens that is. Blocks as
 * inferd_pin(). Any thread. Errors: INFERD_UNSUPPORTED from an older daemon. */
INFERD_API inferd_status inferd_unpin(inferd_connection *connection, uint32_t *unpinned_tokens,
                                      inferd_error **error) INFERD_NOEXCEPT;
/* Asks the daemon to stop. Not for signal handlers: set a flag there and call this elsewhere. The sequence then ends with INFERD_FINISH_CANCELLED unless it had ended. Any thread. */
INFERD_API void inferd_cancel(inferd_sequence *sequence) INFERD_NOEXCEPT;
/* Cancels if it still runs, and frees the handle. NULL is allowed. */
INFERD_API void inferd_close(inferd_sequence *sequence) INFERD_NOEXCEPT;

/* Why a sequence ended. */
typedef enum inferd_finish {
  INFERD_FINISH_NONE = 0,       /* still running */
  INFERD_FINISH_STOP = 1,       /* the model ended its answer, or a stop string matched */
  INFERD_FINISH_LENGTH = 2,     /* max_tokens reached */
  INFERD_FINISH_CONTEXT = 3,    /* the context or the pool's longest sequence is full */
  INFERD_FINISH_CANCELLED = 4,  /* by the client or an administrator */
  INFERD_FINISH_ERROR = 5       /* see the error object */
} inferd_finish;
/* "stop", "length", "context", "cancelled", "error", ""; a static string. */
INFERD_API const char *inferd_finish_name(inferd_finish finish) INFERD_NOEXCEPT;

/* How likely a token was. */
typedef struct inferd_logprob {
  int32_t token;  /* its id; -1: there is none (a tiny vocabulary) */
  float logprob;  /* natural logarithm of its probability, before temperature, penalties and biases */
} inferd_logprob;

/* One event: zero or more tokens with the text that they complete. What it points at is borrowed, and valid
 * until the next call of inferd_next() on this sequence. Text never ends inside a UTF-8 character, and all
 * pieces together equal the decoding of all ids together (where a vocabulary puts a space before every
 * text, an answer to chat_json begins without it, and one to text or ids keeps it: it goes on from there).
 * With stop strings, ids whose text may still turn out to lie behind a match wait for a later event. */
typedef struct inferd_event {
  size_t struct_bytes; /* sizeof(inferd_event); set by the caller or by inferd_event_init */
  const char *text; /* NUL-terminated; may be empty while a character or a stop string is incomplete */
  size_t text_bytes; /* of text, without the terminator */
  const int32_t *ids; /* [ids_count] tokens delivered by this event */
  size_t ids_count;                   /* tokens of this event */
  const inferd_logprob *logprobs;     /* [ids_count], or NULL if not asked for */
  const inferd_logprob *top_logprobs; /* [ids_count, top_logprobs], likely first, or NULL */
  size_t top_logprobs_count;          /* alternatives per id */
  inferd_finish finish;               /* not NONE on the last event */
} inferd_event;

/* Sets the first struct_bytes bytes to an empty event. */
INFERD_API void inferd_event_init_sized(inferd_event *event, size_t struct_bytes) INFERD_NOEXCEPT;
/* Sets an empty event. */
static inline void inferd_event_init(inferd_event *event) INFERD_NOEXCEPT {
  inferd_event_init_sized(event, sizeof(*event));
}

/* Waits for the next event, up to timeout_ms (-1: for ever, 0: does not block). Set event->struct_bytes first.
 * INFERD_OK with an event; INFERD_TIMED_OUT (no error object) if there is none yet; after the last event
 * INFERD_NOT_FOUND (no error object). A sequence that fails returns its error once, with
 * event->finish == INFERD_FINISH_ERROR; if the daemon goes away, that is INFERD_UNAVAILABLE, and inferd_reconnect()
 * and inferd_resume() go on from there. */
INFERD_API inferd_status inferd_next(inferd_sequence *sequence, int timeout_ms, inferd_event *event,
                                     inferd_error **error) INFERD_NOEXCEPT;

/* What a sequence took. */
typedef struct inferd_usage {
  size_t struct_bytes;        /* sizeof(inferd_usage); set by the caller */
  uint32_t prompt_tokens;     /* of the prompt */
  uint32_t cached_tokens;     /* prompt tokens that were not computed for this request; <= prompt_tokens */
  uint32_t completion_tokens; /* tokens delivered */
  double ttft_ms;             /* from submission to the first token's arrival; 0 before */
  double itl_ms;              /* mean time between tokens; 0 with fewer than two */
  /* What the daemon tells at the end of a sequence that did not fail; 0 before, after a stop text (the library
   * finds those without waiting for the daemon), and, but for the first, from an older daemon. */
  double queue_ms;          /* from submission to the first step that worked on it */
  uint32_t computed_tokens; /* computed for this request, those computed again after a preemption included */
  uint32_t preemptions;     /* how often it had to give its memory back and go on later */
} inferd_usage;
/* Figures so far; final after the last event. Any thread. Set usage->struct_bytes first. */
INFERD_API inferd_status inferd_get_usage(const inferd_sequence *sequence, inferd_usage *usage,
                                          inferd_error **error) INFERD_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
