/* The parts of a library that differ from a program: the instance's functions and description, and the header. */
#include "emit/print.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------------------- */

/* Tags of emitted structs, where regions add a prefix, and names at file scope. */
static bool is_tag(const char *name) {
  static const char *const ends[] = {"weights",     "saved",   "inputs",     "caches",      "figures", "tables",
                                     "description", "outputs", "generation", "predictions", "instance"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    size_t n = strlen(name), m = strlen(ends[i]);
    if (n >= m && !strcmp(name + n - m, ends[i]))
      return true;
  }
  return false;
}

const char *library_name(const char *wanted) {
  Name name = c_identifier(wanted);
  return is_tag(name) ? format("%s_model", name) : name;
}

static const char *const functions[] = {"bytes",     "new",    "load",    "free",          "run",      "input",
                                        "output",    "inputs", "outputs", "generate",      "take",     "drawing",
                                        "tokenizer", "encode", "decode",  "generate_text", "take_text"};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

void library_names(Emit *e) {
  push(&e->taken, e->library);
  push(&e->taken, intern("m"));
  push(&e->taken, intern("description"));
  push(&e->taken, intern("instance"));
  push(&e->taken, intern("outputs"));
  push(&e->taken, intern("generation"));
  push(&e->taken, intern("predictions"));
  for (int i = 0; i < N_FUNCTIONS; i++)
    push(&e->taken, internf("%s_%s", e->library, functions[i]));
}

static const char *upper(const char *name) {
  char *text = format("%s", name);
  for (char *c = text; *c; c++)
    *c = (char)toupper((unsigned char)*c);
  return text;
}

/* ---- inputs and outputs ---------------------------------------------------------------------------------- */

/* The graph's inputs that a library has: those that outputs depend on, and the sources of derived ones. */
static Ints inputs_here(const Emit *e) {
  const bool *needed = inputs_of_outputs(e->g);
  Ints list = {0};
  for (int i = 0; i < e->g->inputs.n; i++)
    if (needed[i] || e->g->generation.context)
      push(&list, i);
  return list;
}

static int index_in(const Ints *list, int value) {
  for (int i = 0; i < list->n; i++)
    if (list->at[i] == value)
      return i;
  return -1;
}

/* Whether the library computes the input from another one (runtime/library/run.c). */
static bool is_computed(const Input *in) {
  return in->origin == ORIGIN_LENGTHS || in->origin == ORIGIN_PRESENT || in->origin == ORIGIN_SHIFTED ||
         in->origin == ORIGIN_SEGMENTS;
}

typedef struct Member {
  Name name; /* within its struct */
  const char *type, *comment;
  int64_t elements;
} Member;
typedef Vec(Member) Members;

static const char *words_of(const Value *v) {
  return v->type == TYPE_TOKEN ? format("tokens from 0 to %" PRId64, v->classes - 1) : "floats";
}

static const char *dims_of(const Shape *s) {
  Text t = {0};
  text_add(&t, "[samples]");
  for (int i = 0; i < s->rank; i++)
    text_add(&t, "[%" PRId64 "]", s->dim[i]);
  return t.at;
}

static const char *note_of(const Input *in) {
  switch (in->origin) {
  case ORIGIN_IMAGE: return ": pixels from 0 to 1, which the library normalises";
  case ORIGIN_NORMAL_NOISE: return ": random numbers of mean 0 and deviation 1";
  case ORIGIN_UNIFORM_NOISE: return ": random numbers from 0 to 1";
  case ORIGIN_MASKED: return ": with the masks that the caller wants";
  default: return "";
  }
}

/* The model's name, if the member has another one; "" otherwise. */
static const char *model_name(Name member, Name name) {
  return strcmp(member, name) ? format("'%s': ", name) : "";
}

static Members members_in(const Emit *e) {
  Members list = {0};
  Names taken = {0};
  Ints here = inputs_here(e);
  for (int i = 0; i < here.n; i++) {
    const Input *in = &e->g->inputs.at[here.at[i]];
    const Value *v = &e->g->values.at[in->value];
    if (is_computed(in))
      continue;
    const Name member = unique_name(&taken, in->name);
    push(&list, ((Member){member, v->type == TYPE_TOKEN ? "const int32_t" : "const float",
                          format("%s%s, %s%s", model_name(member, in->name), dims_of(&v->shape), words_of(v),
                                 note_of(in)),
                          shape_elements(&v->shape)}));
  }
  return list;
}

static Members members_out(const Emit *e) {
  Members list = {0};
  Names taken = {0};
  for (int i = graph_n_logged(e->g); i < e->g->figures.n; i++) {
    const Figure *f = &e->g->figures.at[i];
    const Shape *s = &e->g->values.at[f->value].shape;
    const Name member = unique_name(&taken, f->output);
    push(&list, ((Member){member, "float", format("%s%s", model_name(member, f->output), dims_of(s)),
                          shape_elements(s)}));
  }
  return list;
}

/* ---- the model's description ------------------------------------------------------------------------------ */

static void places(Emit *e, const char *name, const Names *list) {
  text_list(&e->out, 2, format("static const size_t %s[] = {", name), list, "}; /* in the arena */\n\n");
}

static void input_tables(Emit *e) {
  Ints here = inputs_here(e);
  Names at = {0};
  text_add(&e->out, "static const struct pd_input inputs[] = {\n");
  for (int i = 0; i < here.n; i++) {
    const Input *in = &e->g->inputs.at[here.at[i]];
    int buffer = input_buffer(e, in->value);
    input_line(e, here.at[i], in->from < 0 ? -1 : index_in(&here, in->from), true);
    push(&at, buffer < 0 ? intern("PD_NOWHERE")
                         : internf("offsetof(struct arena, %s[0].%s)", chunk_member(e, BUFFER_INPUT, 0),
                                   e->member[buffer]));
  }
  text_add(&e->out, "};\n\n");
  places(e, "inputs_at", &at);
}

/* By figure. */
static Name figure_place(const Emit *e, int figure) {
  for (int i = 0; i < e->k->buffers.n; i++)
    if (e->k->buffers.at[i].kind == BUFFER_FIGURE && e->k->buffers.at[i].figure == figure)
      return internf("offsetof(struct arena, figures.%s)", e->member[i]);
  BUG("figure %d has no buffer", figure);
}

static void output_tables(Emit *e) {
  Names at = {0};
  prediction_table(e);
  for (int i = graph_n_logged(e->g); i < e->g->figures.n; i++)
    push(&at, figure_place(e, i));
  places(e, "outputs_at", &at);
}

static void model_table(Emit *e) {
  const bool generates = e->g->generation.context > 0,
             weights = e->allocation->section[SECTION_WEIGHTS].copies > 0;
  text_add(&e->out,
           "static const struct pd_model description = {\n  .name = %s, .instance_bytes = sizeof(struct %s),\n"
           "  .arena_bytes = sizeof(struct arena)%s,\n  .threads = %d, .microbatch = MICROBATCH,\n",
           string_literal(e->library), e->library,
           e->allocation->scratch_bytes > 0 ? ", .scratch_bytes = sizeof ((struct arena *)0)->scratch" : "",
           e->plan->target.threads > 0 ? e->plan->target.threads : 1);
  if (weights)
    text_add(&e->out,
             "  .parameters = parameters, .n_parameters = %d, .weights_at = offsetof(struct arena, weights),\n",
             e->k->params.n);
  text_add(&e->out, "  .inputs = inputs, .inputs_at = inputs_at, .n_inputs = %d,\n", inputs_here(e).n);
  if (generates)
    text_add(&e->out, "  .generation = &generation, .logits_at = %s,\n", figure_place(e, 0));
  else
    text_add(&e->out, "  .outputs = predictions, .outputs_at = outputs_at, .n_outputs = %d,\n", e->g->n_outputs);
  text_add(&e->out, "  .setup = setup, .forward = forward,\n};\n\n");
}

/* ---- functions -------------------------------------------------------------------------------------------- */

static void forward_function(Emit *e) {
  const Pass pass = {PASS_FORWARD, 0};
  PassParameters p = pass_parameters(e, pass);
  Names list = {0};
  push(&list, intern("m"));
  if (p.encodes)
    push(&list, intern("m->instance.encodes"));
  for (int i = 0; i < p.kinds.n; i++) {
    const BufferKind kind = (BufferKind)p.kinds.at[i];
    ensure(kind == BUFFER_WEIGHT || kind == BUFFER_INPUT);
    push(&list, kind == BUFFER_WEIGHT ? intern("&m->arena->weights")
                                      : internf("&m->arena->%s[0]", chunk_member(e, kind, 0)));
  }
  const char *head = format("  %s(", pass_name(e, pass));
  text_add(&e->out, "static void forward(void *instance) {\n  struct %s *m = (struct %s *)instance;\n", e->library,
           e->library);
  text_list(&e->out, (int)strlen(head), head, &list, ");\n}\n\n");
}

/* In the order of the structs' members. */
static void pointers(Emit *e, const char *type, const char *name, const char *from, const Members *list) {
  Names texts = {0};
  for (int i = 0; i < list->n; i++)
    push(&texts, internf("%s->%s", from, list->at[i].name));
  text_list(&e->out, 6, format("  %s%s[] = {", type, name), &texts, "};\n");
}

/* The head of a function of the header. */
static void define(Emit *e, const char *type, const char *function, const char *const *parameters) {
  Names list = {0};
  for (int i = 0; parameters[i]; i++)
    push(&list, intern(parameters[i]));
  text_list(&e->out, 4, format("%s%s_%s(", type, e->library, function), &list, ") {\n");
}

static void run_functions(Emit *e) {
  const char *n = e->library;
  Members in = members_in(e), out = members_out(e);
  text_add(&e->out,
           "int %s_input(const char *name) { return pd_model_input(&description, name); }\n\n"
           "int %s_output(const char *name) { return pd_model_output(&description, name); }\n\n",
           n, n);
  define(e, "int ", "run",
         (const char *[]){format("%s *m", n), "int64_t samples", format("const %s_inputs *in", n),
                          format("const %s_outputs *out", n), "char *why", NULL});
  pointers(e, "const void *const ", "inputs", "in", &in);
  pointers(e, "float *const ", "outputs", "out", &out);
  text_add(&e->out, "  return pd_instance_run(&m->instance, samples, inputs, outputs, why);\n}\n");
}

static void generate_function(Emit *e) {
  const char *n = e->library;
  define(e, "int64_t ", "generate",
         (const char *[]){format("%s *m", n), "const int32_t *prompt", "int64_t n", "int64_t most",
                          format("const %s_drawing *how", n), format("%s_take *take", n), "void *context",
                          "char *why", NULL});
  text_add(&e->out,
           "  struct pd_drawing drawing = {0};\n"
           "  if (how)\n    drawing = (struct pd_drawing){how->temperature, how->top_p, how->top_k, how->seed};\n"
           "  return pd_instance_generate(&m->instance, prompt, n, most, &drawing, take, context, why);\n}\n");
}

static void text_functions(Emit *e) {
  const char *n = e->library;
  text_add(&e->out,
           "\nint %s_tokenizer(%s *m, const char *path, char *why) {\n"
           "  return pd_instance_tokenizer(&m->instance, path, why);\n}\n\n",
           n, n);
  define(e, "int64_t ", "encode",
         (const char *[]){format("%s *m", n), "const char *text", "size_t bytes", "int32_t *tokens",
                          "int64_t most", "char *why", NULL});
  text_add(&e->out, "  return pd_instance_encode(&m->instance, text, bytes, tokens, most, why);\n}\n\n");
  define(e, "int64_t ", "decode",
         (const char *[]){format("%s *m", n), "const int32_t *tokens", "int64_t n", "char *text", "size_t room",
                          "char *why", NULL});
  text_add(&e->out, "  return pd_instance_decode(&m->instance, tokens, n, text, room, why);\n}\n\n");
  define(e, "int64_t ", "generate_text",
         (const char *[]){format("%s *m", n), "const char *prompt", "size_t bytes", "int64_t most",
                          "const char *const *stops", format("const %s_drawing *how", n),
                          format("%s_take_text *take", n), "void *context", "char *why", NULL});
  text_add(&e->out,
           "  struct pd_drawing drawing = {0};\n"
           "  if (how)\n    drawing = (struct pd_drawing){how->temperature, how->top_p, how->top_k, how->seed};\n"
           "  return pd_instance_generate_text(&m->instance, prompt, bytes, most, stops, &drawing, take, context, "
           "why);\n}\n");
}

void library_functions(Emit *e) {
  const char *n = e->library;
  forward_function(e);
  text_add(&e->out, "/* ---- the model ---- */\n\n");
  parameter_table(e);
  input_tables(e);
  if (e->g->generation.context)
    generation_table(e);
  else
    output_tables(e);
  model_table(e);
  text_add(
      &e->out,
      "/* ---- %s.h ---- */\n\nsize_t %s_bytes(void) { return pd_instance_bytes(&description); }\n\n"
      "%s *%s_new(void *memory, size_t bytes, int threads, char *why) {\n"
      "  return (struct %s *)pd_instance_new(&description, memory, bytes, threads, why);\n}\n\n"
      "int %s_load(%s *m, const char *path, char *why) { return pd_instance_load(&m->instance, path, why); }\n\n"
      "void %s_free(%s *m) { pd_instance_free((struct pd_instance *)m); }\n\n",
      n, n, n, n, n, n, n, n, n);
  (e->g->generation.context ? generate_function : run_functions)(e);
  if (e->g->generation.context)
    text_functions(e);
}

/* ---- the header -------------------------------------------------------------------------------------------- */

/* "NAME_API TYPE NAME_FUNCTION(PARAMETERS);", with a comment before it. */
static void declare(Text *out, const Emit *e, const char *comment, const char *type, const char *function,
                    const char *const *parameters) {
  const char *head = format("%s_API %s%s_%s(", upper(e->library), type, e->library, function);
  Names list = {0};
  for (int i = 0; parameters[i]; i++)
    push(&list, intern(parameters[i]));
  text_comment(out, 0, comment);
  text_list(out, 4, head, &list, ");\n\n");
}

static void header_struct(Text *out, const char *name, const char *which, const char *comment,
                          const Members *list) {
  text_comment(out, 0, comment);
  text_add(out, "typedef struct %s_%s {\n", name, which);
  for (int i = 0; i < list->n; i++)
    text_add(out, "  %s *%s; /* %s */\n", list->at[i].type, list->at[i].name, comment_text(list->at[i].comment));
  text_add(out, "} %s_%s;\n\n", name, which);
}

static void sizes(Text *out, const char *name, const Members *list) {
  Names taken = {0};
  push(&taken, intern("why"));
  push(&taken, intern("microbatch"));
  push(&taken, intern("api"));
  push(&taken, intern("h"));
  for (int i = 0; i < list->n; i++)
    text_add(out, "  %s_%s = %" PRId64 ",%s\n", upper(name), upper(unique_name(&taken, list->at[i].name)),
             list->at[i].elements, i ? "" : " /* elements of a sample, here and below */");
}

static void header_run(Text *out, const Emit *e) {
  const char *n = e->library, *up = upper(n);
  Members in = members_in(e), all = members_in(e), outs = members_out(e);
  for (int i = 0; i < outs.n; i++)
    push(&all, outs.at[i]);
  text_add(out,
           "enum {\n  %s_WHY = 1024,\n  %s_MICROBATCH = %" PRId64 ", /* samples that are computed together */\n",
           up, up, e->k->microbatch);
  sizes(out, n, &all);
  text_add(out, "};\n\n");
  header_struct(out, n, "inputs", "Pointers only, so callers may pass an array of them.", &in);
  header_struct(out, n, "outputs", "Pointers only. NULL: the output is not wanted.", &outs);
  declare(out, e, "Computes the outputs of any number of samples: 0, or -1. Results do not depend on threads.",
          "int ", "run",
          (const char *[]){format("%s *m", n), "int64_t samples", format("const %s_inputs *in", n),
                           format("const %s_outputs *out", n), "char *why", NULL});
  declare(out, e, "The index of an input's pointer in its struct; -1: unknown name.", "int ", "input",
          (const char *[]){"const char *name", NULL});
  declare(out, e, "The same of an output.", "int ", "output", (const char *[]){"const char *name", NULL});
}

static void header_generate(Text *out, const Emit *e) {
  const char *n = e->library, *up = upper(n);
  const Generation *g = &e->g->generation;
  const int64_t classes = e->g->values.at[e->g->inputs.at[g->tokens].value].classes;
  const char *prompt = g->encoder ? "most new tokens" : "most tokens of a prompt; sequences end at this + 1";
  text_add(out,
           "enum {\n  %s_WHY = 1024,\n  %s_CONTEXT = %" PRId64 ", /* %s */\n"
           "  %s_TOKENS = %" PRId64 ", /* a token is from 0 to this, less 1 */\n",
           up, up, g->context, prompt, up, classes);
  if (g->encoder) {
    const Value *source = &e->g->values.at[e->g->inputs.at[g->source].value];
    text_add(out,
             "  %s_SOURCE = %" PRId64 ", /* most tokens of a source */\n"
             "  %s_SOURCE_TOKENS = %" PRId64 ", /* a source's token is from 0 to this, less 1 */\n",
             up, source->shape.dim[0], up, source->classes);
  }
  text_add(out, "};\n\n");
  text_comment(
      out, 0,
      "The choice of tokens, by the options of `generate`. temperature 0: always the most probable token; "
      "top_k 0 and top_p 0: all tokens.");
  text_add(
      out,
      "typedef struct %s_drawing {\n  float temperature, top_p;\n  int64_t top_k;\n  uint64_t seed;\n} %s_drawing;\n\n"
      "/* Called with each new token. Returns 0, or another number to end. */\n"
      "typedef int %s_take(void *context, int32_t token);\n\n",
      n, n, n);
  const char *does =
      g->encoder
          ? "Generates at most `most` tokens from a source of n tokens, which the encoder reads. Returns the number "
            "of tokens, or -1."
          : "Continues a prompt of n tokens by at most `most` tokens, within the context plus one token, which is "
            "not fed. Returns the number of new tokens, or -1. A prompt that starts like the one before "
            "continues from its caches.";
  declare(
      out, e,
      format("%s how NULL: temperature 0. take NULL: tokens are only counted. take may not call functions with m, "
             "except free, which ends the generation.",
             does),
      "int64_t ", "generate",
      (const char *[]){format("%s *m", n), format("const int32_t *%s", g->encoder ? "source" : "prompt"),
                       "int64_t n", "int64_t most", format("const %s_drawing *how", n), format("%s_take *take", n),
                       "void *context", "char *why", NULL});
}

static void header_texts(Text *out, const Emit *e) {
  const char *n = e->library, *what = e->g->generation.encoder ? "source" : "prompt";
  declare(
      out, e,
      "Reads the tokenizer of a folder, or a tokenizer.json: 0, or -1. Replaces an earlier one. Its memory comes from "
      "malloc.",
      "int ", "tokenizer", (const char *[]){format("%s *m", n), "const char *path", "char *why", NULL});
  declare(out, e,
          format("The tokens of a text as a %s. Returns their number, or -1; writes the first `most` of them.",
                 what),
          "int64_t ", "encode",
          (const char *[]){format("%s *m", n), "const char *text", "size_t bytes", "int32_t *tokens",
                           "int64_t most", "char *why", NULL});
  declare(
      out, e,
      "The text of n tokens, in UTF-8. Returns its bytes, or -1; writes the first room - 1 of them and a zero byte. "
      "Special tokens have no text.",
      "int64_t ", "decode",
      (const char *[]){format("%s *m", n), "const int32_t *tokens", "int64_t n", "char *text", "size_t room",
                       "char *why", NULL});
  text_comment(
      out, 0,
      "Called with new text: whole characters, without a zero byte behind them. Returns 0, or another number "
      "to end.");
  text_add(out, "typedef int %s_take_text(void *context, const char *text, size_t bytes);\n\n", n);
  declare(
      out, e,
      format(
          "%s until an end token, after `most` tokens, or before a text of `stops`, whose last is NULL; NULL: no "
          "stops. Returns the number of tokens drawn, or -1. how and take as for generate.",
          e->g->generation.encoder ? "Generates text from a source" : "Continues a text"),
      "int64_t ", "generate_text",
      (const char *[]){format("%s *m", n), format("const char *%s", what), "size_t bytes", "int64_t most",
                       "const char *const *stops", format("const %s_drawing *how", n),
                       format("%s_take_text *take", n), "void *context", "char *why", NULL});
}

char *library_header(const Emit *e) {
  const char *n = e->library, *up = upper(n);
  const int threads = e->plan->target.threads > 0 ? e->plan->target.threads : 1;
  Text out = {0};
  text_comment(
      &out, 0,
      format("The model %s as a C library, compiled by pdc. Link lib%s.so, or lib%s.a with -lomp -ldnnl "
             "-lcjson -lpthread -lm. One thread at a time uses an instance; instances on other threads run at "
             "the same time. Functions that fail return NULL or -1 after writing the reason to `why`, which "
             "has %s_WHY bytes or is NULL. No function prints, exits or handles signals.",
             comment_text(e->g->name), n, n, up));
  text_add(&out,
           "#ifndef %s_H\n#define %s_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n"
           "#define %s_API __attribute__((visibility(\"default\")))\n\n"
           "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\ntypedef struct %s %s; /* an instance */\n\n",
           up, up, up, n, n);
  (e->g->generation.context ? header_generate : header_run)(&out, e);
  if (e->g->generation.context)
    header_texts(&out, e);
  declare(&out, e, "Bytes of an instance, weights included.", "size_t ", "bytes", (const char *[]){"void", NULL});
  declare(
      &out, e,
      format(
          "An instance without weights, or NULL. memory: of `bytes` bytes at a multiple of 64, which the caller "
          "keeps until after %s_free(); NULL: the library allocates it, and %s_free() releases it. threads: at most "
          "%d; 0: %d.",
          n, n, threads, threads),
      format("%s *", n), "new",
      (const char *[]){"void *memory", "size_t bytes", "int threads", "char *why", NULL});
  declare(&out, e,
          "Reads the weights from a .safetensors file, an index of such files, or a folder with either: 0, or -1.",
          "int ", "load", (const char *[]){format("%s *m", n), "const char *path", "char *why", NULL});
  declare(&out, e, "m NULL: nothing.", "void ", "free", (const char *[]){format("%s *m", n), NULL});
  text_add(&out, "#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
  return out.at;
}
