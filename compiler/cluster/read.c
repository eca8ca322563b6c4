/* Resolves --cluster: a cluster of a file, or one of pdc's own. */
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "cluster/cluster.h"
#include "syntax/ast.h"

static const char *standard_file(void) { return format("%s/clusters.pdm", own_folder("stdlib_layers")); }

/* A name of the language. */
static bool is_name(const char *text) {
  if (!isalpha((unsigned char)*text) && *text != '_')
    return false;
  while (isalnum((unsigned char)*text) || *text == '_')
    text++;
  return !*text;
}

typedef Vec(const Ast *) Blocks;

/* False after a diagnostic: a duplicate name. */
static bool find_blocks(const Ast *file, Blocks *blocks) {
  for (int i = 0; i < file->list.n; i++) {
    const Ast *a = file->list.at[i];
    if (a->kind != AST_CLUSTER)
      continue;
    for (int k = 0; k < blocks->n; k++)
      if (blocks->at[k]->name == a->name) {
        note_at(error_at(a->span2, "PD0535", "cluster '%s' is defined twice", a->name), blocks->at[k]->span2,
                "the first one is here");
        return false;
      }
    push(blocks, a);
  }
  return true;
}

static char *names_of(const Blocks *blocks) {
  Text all = {0};
  for (int i = 0; i < blocks->n; i++)
    text_add(&all, "%s'%s'", i == 0 ? "" : i == blocks->n - 1 ? " and " : ", ", blocks->at[i]->name);
  return all.n ? all.at : "none";
}

static void tell_no_name(const Blocks *blocks, const char *name, const char *path, Span where) {
  bool standard = !strcmp(path, standard_file());
  Vec(const char *) names = {0};
  for (int i = 0; i < blocks->n; i++)
    push(&names, blocks->at[i]->name);
  Diagnostic *d = standard ? error_at(NO_SPAN, "PD0530", "--cluster: pdc has no cluster '%s'", name)
                           : error_at(where, "PD0530", "--cluster: this file has no cluster '%s'", name);
  const char *like = nearest(name, names.at, names.n);
  if (like)
    help(d, "did you mean '%s'?", like);
  else
    help(d, "there are %s", names_of(blocks));
  if (standard && access(name, R_OK) == 0)
    help(d, "to read a file, write '--cluster ./%s'", name);
  else if (standard)
    help(d, "to read your own cluster, write '--cluster FILE.pdm'");
}

/* name NULL: the file's only cluster. */
static const Cluster *read_from(const char *path, const char *name) {
  const Ast *file = parse_file(path);
  Blocks blocks = {0};
  if (!file || !find_blocks(file, &blocks))
    return NULL;
  Span where = {.file = file->span.file};
  if (!name && blocks.n == 1)
    return cluster_make(blocks.at[0]);
  if (!name && blocks.n == 0) {
    help(error_at(where, "PD0530", "--cluster: this file contains no cluster"),
         "a cluster is written 'cluster NAME { ... }'");
    return NULL;
  }
  if (!name) {
    Diagnostic *d =
        error_at(where, "PD0530", "--cluster: this file contains %d clusters: %s", blocks.n, names_of(&blocks));
    help(d, "choose one, such as '--cluster %s:%s'", path, blocks.at[0]->name);
    return NULL;
  }
  for (int i = 0; i < blocks.n; i++)
    if (!strcmp(blocks.at[i]->name, name))
      return cluster_make(blocks.at[i]);
  tell_no_name(&blocks, name, path, where);
  return NULL;
}

const Cluster *cluster_read(const char *text) {
  if (is_name(text))
    return read_from(standard_file(), text);
  const char *colon = strrchr(text, ':');
  if (colon && colon > text && is_name(colon + 1))
    return read_from(format("%.*s", (int)(colon - text), text), colon + 1);
  return read_from(text, NULL);
}
