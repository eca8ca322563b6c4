/* The last pass, build: a folder of programs. */
#include "compile/compile.h"

Show what_to_show(Compilation *c, int depth) {
  Target target = c->options.plan.target;
  StageKernels *whole = fuse(c->graph, &c->pieces, 0, c->pieces.n, 0, 1, 1, false, false, target);
  return (Show){c->graph, &c->pieces, &c->outline, whole, c->plan, depth};
}

/* The launcher's arguments, for messages. */
static const char *arguments(const Options *o, const FrontModel *m) {
  const char *adapters = o->lora && (o->infer || o->generate) ? " ADAPTER_DIR" : "";
  const char *init = m->init ? format("--init %s%s", shell_quoted(m->init), adapters) : "";
  if (o->generate && m->init && m->tokenizer)
    return format("%s --tokenizer %s --prompt TEXT", init, shell_quoted(m->tokenizer));
  if (o->generate)
    return format("%s --prompt TEXT", m->init ? init : "--init FILE");
  if (o->infer)
    return format("--data PATH %s", m->init ? init : "--init FILE");
  return format("--data PATH --steps N%s%s", m->init ? " " : "", init);
}

bool pass_build(Compilation *c) {
  const Options *o = &c->options;
  int n = n_stages(c), *replicas = alloc((size_t)n * sizeof *replicas);
  for (int i = 0; i < n; i++)
    replicas[i] = c->programs[i].replicas * (c->graph->shards ? c->graph->shards : 1);
  Show picture = what_to_show(c, PICTURE_DEPTH);
  Output out = {.directory = output_directory(o),
                .model = base_name(o->input),
                .launcher = o->generate ? "generate"
                            : o->infer  ? "infer"
                                        : "train",
                .arguments = arguments(o, &c->model),
                .toolchain = backend_of(&c->plan->target)->toolchain,
                .n_stages = n,
                .replicas = replicas,
                .placement = c->plan->placement,
                .source = c->sources,
                .plan_json = c->plan_json,
                .picture = show_svg(&picture)};
  if (o->library) {
    out.launcher = NULL;
    out.n_stages = 0;
    return library_deliver(o, &c->library, &out);
  }
  if (o->dry_run)
    return o->sources_only || cc_stages(o, &out);
  if (!output_write(o, &out))
    return false;
  if (!o->sources_only && !cc_stages(o, &out)) {
    output_abandon(&out);
    return false;
  }
  if (!output_install(o, &out))
    return false;
  if (!o->quiet)
    plan_delay_hint(c->graph, c->plan, stderr);
  return true;
}
