/* Options of a generation that need no file to check. */
#include "generate/internal.h"

bool pd_generation_check(struct pd_options *o, char *why) {
  const int64_t MOST_TOKENS = INT32_MAX; /* of a sample */
  int prompts =
      (o->prompt != NULL) + (o->prompt_file != NULL) + (o->prompt_tokens != NULL) + (o->prompts != NULL) + o->chat;
  o->steps = 0;
  if (!o->n_init) return pd_refuse(why, "--init FILE is missing: there are no weights to generate with");
  if (prompts > 1)
    return pd_refuse(
        why, "--prompt, --prompt-file, --prompt-tokens, --prompts and --chat exclude each other. help: give "
             "one of them");
  if (o->features && (o->prompt || o->prompt_file || o->prompts || o->chat))
    return pd_refuse(
        why,
        "--features has the sources: of the options of prompts it takes --prompt-tokens alone, the first tokens of the text");
  if (pd_reads_features() != (o->features != NULL))
    return pd_refuse(why,
                     o->features ? "--features: the model reads no numbers"
                                 : "the model reads the numbers of '%s'. help: give --features FILE.npy",
                     pd.stage->inputs[pd_generated()->source].name);
  if (pd_generated()->encoder && (o->window || o->chat))
    return pd_refuse(
        why, "%s continues one text, but this model has an encoder, which reads one text and begins another",
        o->window ? "--window" : "--chat");
  if (o->prompts) o->output = PD_PRINT_JSON;
  if (o->tokens < 0) o->tokens = o->chat ? pd_generated()->context : 100;
  if (o->chat && (o->output != PD_PRINT_TEXT || pd_generated()->samples > 1))
    return pd_refuse(why,
                     "--chat prints text of one sample. help: leave --output out, and build with --samples 1");
  if (o->logprobs && o->output != PD_PRINT_JSON)
    return pd_refuse(why, "--logprobs needs --output json, or --prompts");
  if (o->logprobs > PD_MOST_LOGPROBS)
    return pd_refuse(why, "--logprobs %lld is more than %d", (long long)o->logprobs, PD_MOST_LOGPROBS);
  if (o->system && !o->chat) return pd_refuse(why, "--system needs --chat");
  if (o->chat_template && !o->chat && !o->prompts)
    return pd_refuse(why, "--chat-template needs --chat or --prompts FILE");
  for (int i = 0; i < o->n_stop_texts; i++)
    if (!*o->stop_texts[i]) return pd_refuse(why, "--stop needs a text that is not empty");
  if (!(o->top_p > 0 && o->top_p <= 1)) return pd_refuse(why, "--top-p needs a number above 0 and at most 1");
  if (o->temperature == 0 && (o->top_k || o->top_p < 1))
    pd_warn("%s has no effect with --temperature 0", o->top_k ? "--top-k" : "--top-p");
  if (o->tokens > MOST_TOKENS)
    return pd_refuse(why, "--tokens %lld is more than can be generated at once: at most %lld",
                     (long long)o->tokens, (long long)MOST_TOKENS);
  return true;
}
