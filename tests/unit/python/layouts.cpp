// Prints where a C++ compiler puts each field of the client library's structures, one a line:
// structure, field, offset, bytes; and each structure's bytes. package_test.py compares them with what the
// Python package says.
#include <inferd/inferd.h>

#include <cstddef>
#include <cstdio>

#define STRUCTURE(s) std::printf("%s - 0 %zu\n", #s, sizeof(s))
#define FIELD(s, f) std::printf("%s %s %zu %zu\n", #s, #f, offsetof(s, f), sizeof(s::f))

int main() {
  STRUCTURE(inferd_connect_options);
  FIELD(inferd_connect_options, struct_bytes);
  FIELD(inferd_connect_options, socket_path);
  FIELD(inferd_connect_options, model);
  FIELD(inferd_connect_options, client_name);
  FIELD(inferd_connect_options, timeout_ms);
  FIELD(inferd_connect_options, spin_us);
  FIELD(inferd_connect_options, cache_domain);
  STRUCTURE(inferd_model_info);
  FIELD(inferd_model_info, struct_bytes);
  FIELD(inferd_model_info, name);
  FIELD(inferd_model_info, architecture);
  FIELD(inferd_model_info, quantization);
  FIELD(inferd_model_info, numerics_id);
  FIELD(inferd_model_info, parameters);
  FIELD(inferd_model_info, vocabulary);
  FIELD(inferd_model_info, context_tokens);
  FIELD(inferd_model_info, bos_token);
  FIELD(inferd_model_info, eos_token);
  FIELD(inferd_model_info, has_chat_template);
  FIELD(inferd_model_info, in_use);
  STRUCTURE(inferd_prompt);
  FIELD(inferd_prompt, struct_bytes);
  FIELD(inferd_prompt, text);
  FIELD(inferd_prompt, text_bytes);
  FIELD(inferd_prompt, text_flags);
  FIELD(inferd_prompt, chat_json);
  FIELD(inferd_prompt, chat_json_bytes);
  FIELD(inferd_prompt, ids);
  FIELD(inferd_prompt, ids_count);
  STRUCTURE(inferd_logit_bias);
  FIELD(inferd_logit_bias, token);
  FIELD(inferd_logit_bias, bias);
  STRUCTURE(inferd_sampling);
  FIELD(inferd_sampling, struct_bytes);
  FIELD(inferd_sampling, temperature);
  FIELD(inferd_sampling, top_k);
  FIELD(inferd_sampling, top_p);
  FIELD(inferd_sampling, min_p);
  FIELD(inferd_sampling, repetition_penalty);
  FIELD(inferd_sampling, presence_penalty);
  FIELD(inferd_sampling, frequency_penalty);
  FIELD(inferd_sampling, penalty_last_n);
  FIELD(inferd_sampling, seed);
  FIELD(inferd_sampling, branch);
  FIELD(inferd_sampling, logit_bias);
  FIELD(inferd_sampling, logit_bias_count);
  FIELD(inferd_sampling, stop);
  FIELD(inferd_sampling, stop_count);
  FIELD(inferd_sampling, max_tokens);
  FIELD(inferd_sampling, logprobs);
  FIELD(inferd_sampling, top_logprobs);
  FIELD(inferd_sampling, ignore_eos);
  FIELD(inferd_sampling, priority);
  FIELD(inferd_sampling, nice);
  FIELD(inferd_sampling, deadline_ms);
  FIELD(inferd_sampling, no_store);
  STRUCTURE(inferd_logprob);
  FIELD(inferd_logprob, token);
  FIELD(inferd_logprob, logprob);
  STRUCTURE(inferd_event);
  FIELD(inferd_event, struct_bytes);
  FIELD(inferd_event, text);
  FIELD(inferd_event, text_bytes);
  FIELD(inferd_event, ids);
  FIELD(inferd_event, ids_count);
  FIELD(inferd_event, logprobs);
  FIELD(inferd_event, top_logprobs);
  FIELD(inferd_event, top_logprobs_count);
  FIELD(inferd_event, finish);
  STRUCTURE(inferd_usage);
  FIELD(inferd_usage, struct_bytes);
  FIELD(inferd_usage, prompt_tokens);
  FIELD(inferd_usage, cached_tokens);
  FIELD(inferd_usage, completion_tokens);
  FIELD(inferd_usage, ttft_ms);
  FIELD(inferd_usage, itl_ms);
  FIELD(inferd_usage, queue_ms);
  FIELD(inferd_usage, computed_tokens);
  FIELD(inferd_usage, preemptions);
  return 0;
}
