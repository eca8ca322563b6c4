/* pdc compiles a model description to one C or CUDA program per pipeline stage. The compiler is the table of
 * passes below; each pass maps one structure to the next. */
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "compile/compile.h"
#include "export/export.h"
#include "format/format.h"
#include "import/import.h"
#include "lsp/lsp.h"
#include "merge/merge.h"
#include "report/report.h"

/* clang-format off */
static const Pass passes[] = {
    {'p', "parse", .run = pass_parse, .dump = dump_ast, .emits = EMIT_AST},
    {'e', "elaborate", .run = pass_elaborate, .dump = dump_graph, .verify = verify_graph},
    {'g', "decode", .run = pass_decode, .dump = dump_graph, .verify = verify_graph},
    {'y', "layout", .run = pass_layout, .dump = dump_graph, .verify = verify_graph},
    {'a', "autodiff", .run = pass_autodiff, .dump = dump_graph, .verify = verify_graph},
    {'s', "simplify", .run = pass_simplify, .dump = dump_graph, .verify = verify_graph, .emits = EMIT_GRAPH},
    {'x', "tensor", .run = pass_tensor, .dump = dump_graph, .verify = verify_graph},
    {'r', "residual", .run = pass_residual, .dump = dump_graph, .verify = verify_graph},
    {'i', "biases", .run = pass_biases, .dump = dump_graph, .verify = verify_graph},
    {'c', "cut", .run = pass_cut, .dump = dump_pieces, .verify = verify_pieces},
    {'l', "plan", .run = pass_plan, .dump = dump_plan, .verify = verify_plan, .always = true, .emits = EMIT_PLAN},
    {'f', "fuse", .run = pass_fuse, .dump = dump_kernels, .verify = verify_kernels, .always = true, .emits = EMIT_KERNELS},
    {'w', "lower", .run = pass_lower, .dump = dump_lowered, .verify = verify_lowered},
    {'t', "schedule", .run = pass_schedule, .dump = dump_programs, .verify = verify_programs, .always = true, .emits = EMIT_SCHEDULE},
    {'m', "allocate", .run = pass_allocate, .dump = dump_allocations, .verify = verify_allocations, .always = true},
    {'o', "emit", .run = pass_emit, .dump = dump_sources, .emits = EMIT_SOURCE},
    {'b', "build", .run = pass_build},
};
/* clang-format on */

static bool tokenize_files(const Options *o) {
  TokenizeRequest request = o->tokens;
  request.files = o->files.at, request.n_files = o->files.n;
  request.output = o->output, request.threads = o->plan.target.threads, request.quiet = o->quiet;
  return tokenize(&request);
}

static bool show_data(Compilation *c) {
  const Options *o = &c->options;
  DataFiles files = {0};
  if (o->first_line)
    return print_first_line(o->first_line, stdout);
  if (o->input && !compile(c, "elaborate"))
    return false;
  if (!data_files(&o->shown_data, 1, &files) || !data_files(o->files.at, o->files.n, &files))
    return false;
  const Graph *model = o->input ? c->graph : NULL;
  const int n = files.n;
  DataView *views = alloc(sizeof *views * (size_t)n);
  for (int i = 0; i < n; i++)
    if (!data_view(&views[i], files.at[i], o->tokens.tokenizer, model))
      return false;
  const int64_t samples = model ? data_samples(views, n, model) : -1;
  if ((model && samples < 0) || (o->data_page && !data_page(&views[0], o->data_page)))
    return false;
  if (n > 1)
    data_print_all(views, n, samples, stdout);
  else
    data_print(views, stdout);
  return true;
}

/* Whether the command's outputs, apart from folders, are none of its inputs. */
static bool keeps_inputs(const Options *o) {
  static const char *const endings[COMMAND_HELP + 1] = {[COMMAND_REPORT] = ".html",
                                                        [COMMAND_PLAN] = ".html",
                                                        [COMMAND_IMPORT] = ".pdm",
                                                        [COMMAND_PROFILE] = ".profile.json",
                                                        [COMMAND_TOKENIZE] = ""};
  const char *output = endings[o->command] ? o->output : NULL, *ending = endings[o->command];
  const char *inputs[] = {o->input, o->plan.profile, o->tokens.tokenizer};
  bool good = output_is_no_input(o->data_page, o->shown_data, ".html");
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs && good; i++)
    good = output_is_no_input(output, inputs[i], ending) && output_is_no_input(o->svg, inputs[i], ".svg") &&
           output_is_no_input(o->dot, inputs[i], ".dot") && output_is_no_input(o->data_page, inputs[i], ".html");
  return good;
}

static bool run_command(Compilation *c) {
  const Options *o = &c->options;
  switch (o->command) {
  case COMMAND_EXPLAIN: return explain_name(o->input, stdout);
  case COMMAND_REPORT: return report(o->input, o->output);
  case COMMAND_CHECKPOINT: return checkpoint_list(o->input, stdout);
  case COMMAND_DOCTOR: return doctor(o);
  case COMMAND_COMPLETION: return print_completion(o->files.at[0], o->files.n > 1 ? o->files.at[1] : NULL);
  case COMMAND_HELP: print_help(o->files.n ? o->files.at[0] : NULL); return true;
  case COMMAND_PROFILE: return profile_command(c);
  case COMMAND_TOKENIZE: return tokenize_files(o);
  case COMMAND_DATA: return show_data(c);
  case COMMAND_PLAN: return plan_command(c);
  case COMMAND_SHOW: return show_command(c);
  case COMMAND_LSP: return lsp_serve(STDIN_FILENO, stdout);
  case COMMAND_FORMAT: return format_files(o->files.at, o->files.n, o->check, stdout);
  case COMMAND_EXPORT: return export_gguf(o->input, o->output, (ExportType)o->export_type);
  case COMMAND_MERGE: return merge_folders(o->files.at[0], o->files.at[1], o->output);
  case COMMAND_IMPORT: return import_folder(o->input, o->output);
  case COMMAND_BUILD: return build_command(c);
  }
  return false;
}

int main(int argc, char **argv) {
  setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
  static const Passes all = {passes, sizeof passes / sizeof *passes};
  static Options options;
  static Compilation c;
  const Options *o = &options;
  options_read(&options, argc, argv);
  if (o->stop_after && !find_pass(&all, o->stop_after)) {
    fprintf(stderr, "pdc: error: --stop-after: there is no pass '%s'\n", o->stop_after);
    return 2;
  }
  compilation_start(&c, &all, o);
  bool good = error_count() == 0 && march_prepare(o) && keeps_inputs(o) && run_command(&c);
  diagnostics_flush();
  return output_status(good && error_count() == 0 ? 0 : 1);
}
