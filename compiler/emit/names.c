/* Names, literals, comments and wrapped lists of emitted C. */
#include "emit/print.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Keywords of C++20 that C lacks, and CUDA's names. */
/* clang-format off */
static const char *const reserved_in_cuda[] = {
  "alignas", "alignof", "and", "and_eq", "bitand", "bitor", "catch", "char8_t", "char16_t", "char32_t", "class",
  "compl", "concept", "const_cast", "consteval", "constexpr", "constinit", "co_await", "co_return", "co_yield",
  "decltype", "delete", "dynamic_cast", "explicit", "export", "friend", "mutable", "namespace", "new", "noexcept",
  "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "reinterpret_cast",
  "requires", "static_assert", "static_cast", "template", "this", "thread_local", "throw", "try", "typeid",
  "typename", "using", "virtual", "wchar_t", "xor", "xor_eq", "threadIdx", "blockIdx", "blockDim", "gridDim",
  "warpSize", "dim3", "half", "std", "import", "module",
};
/* clang-format on */

/* C11's keywords, and names that emitted files or the headers they include already use. */
/* clang-format off */
static const char *const reserved[] = {
  "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
  "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
  "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "asm",
  "typeof", "bool", "true", "false", "NULL", "NAN", "INFINITY", "I", "linux", "unix", "main", "setup",
  "forward", "backward", "recompute", "forward_pass", "backward_pass", "weights_pass", "update", "validate",
  "version", "arena", "weights", "frozen", "gradients", "saved", "kept", "deferred", "received", "sent",
  "function", "settings", "traits", "inputs", "tables", "figures", "gradients_received", "gradients_sent", "received_values", "sent_values",
  "gradients_received_values", "gradients_sent_values", "work", "scratch", "step", "first", "first_sample", "stage",
  "parameters", "groups", "tensors", "parts", "replicas", "planned_peak_bytes", "chunk", "microbatch", "pd",
  "w", "g", "s", "k", "t", "f", "b", "u", "in", "masters", "averages", "now",
  "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "size_t", "memset",
  "algorithms", "attentions", "from", "end", "exchanged", "moments", "own_moments", "partial", "sum_lanes",
  "max_lanes", "lanes", "exp", "log", "tanh", "erf", "erfc", "sin", "cos", "sqrt", "abs", "y0", "y1", "yn", "j0",
  "j1", "jn", "gamma", "index", "div", "remove", "signal", "time", "read", "write", "open", "close", "select",
};
/* clang-format on */

static bool is_in(const ReservedNames *names, const char *text) {
  for (size_t low = 0, high = names->n; low < high;) {
    const size_t middle = low + (high - low) / 2;
    const int order = strcmp(names->at[middle], text);
    if (order == 0)
      return true;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return false;
}

static bool is_listed(const char *text) {
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    if (!strcmp(reserved[i], text))
      return true;
  for (size_t i = 0; i < sizeof reserved_in_cuda / sizeof *reserved_in_cuda; i++)
    if (!strcmp(reserved_in_cuda[i], text))
      return true;
  return is_in(&macros_of_headers, text);
}

static bool is_reserved(const char *text) {
  return is_listed(text) || !strncmp(text, "cuda", 4) || !strncmp(text, "pd_", 3) || !strncmp(text, "PD_", 3) ||
         !strncmp(text, "MPI", 3);
}

static bool all_upper(const char *text) {
  for (; *text; text++)
    if (islower((unsigned char)*text))
      return false;
  return true;
}

Name c_identifier(const char *text) {
  Text out = {0};
  for (const char *c = text; *c; c++) {
    bool word = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
    if (word)
      text_add(&out, "%c", *c);
    else if (out.n > 0 && out.at[out.n - 1] != '_')
      text_add(&out, "_");
  }
  while (out.n > 0 && out.at[out.n - 1] == '_')
    out.at[--out.n] = 0;
  if (out.n == 0)
    return intern("unnamed");
  if (isdigit((unsigned char)out.at[0]))
    return internf("_%s", out.at);
  if (is_reserved(out.at) || all_upper(out.at)) /* capitals are for constants and macros */
    return internf("%s_", out.at);
  return intern(out.at);
}

static bool is_taken(const Names *taken, Name name) {
  for (int i = 0; i < taken->n; i++)
    if (taken->at[i] == name)
      return true;
  return false;
}

static Name numbered(Name base, int i) {
  size_t n = strlen(base);
  const char *separator = base[n - 1] == '_' || isdigit((unsigned char)base[n - 1]) ? "_" : "";
  return i == 1 ? base : internf("%s%s%d", base, separator, i);
}

Name unique_name(Names *taken, const char *wanted) {
  Name base = c_identifier(wanted), name = base;
  for (int i = 2; is_taken(taken, name) || is_listed(name); i++) /* `dim` is followed by `dim2` and `dim4` */
    name = numbered(base, i);
  push(taken, name);
  return name;
}

/* Names that programs derive from a kernel's: its second kernel, and in timing programs its functions and its
 * table. */
static const char *const derived[][2] = {{"", ""},     {"", "_sums"}, {"", "_rows"},
                                         {"run_", ""}, {"fill_", ""}, {"at_", ""}};
enum { N_DERIVED = sizeof derived / sizeof *derived };

Name unique_kernel_name(Names *taken, const char *wanted) {
  Name base = c_identifier(wanted), all[N_DERIVED];
  if (is_in(&declared_by_headers, base))
    base = internf("%s_", base);
  bool free = false;
  for (int i = 1; !free; i++) {
    free = !is_listed(numbered(base, i)) && !is_in(&declared_by_headers, numbered(base, i));
    for (int k = 0; k < N_DERIVED; k++) {
      all[k] = internf("%s%s%s", derived[k][0], numbered(base, i), derived[k][1]);
      free = free && !is_taken(taken, all[k]);
    }
  }
  for (int k = 0; k < N_DERIVED; k++)
    push(taken, all[k]);
  return all[0];
}

char *comment_text(const char *text) {
  char *copy = format("%s", text ? text : "");
  for (char *c = copy; *c; c++) {
    if ((unsigned char)*c < ' ' || (unsigned char)*c >= 127 || *c == '\\')
      *c = '?';
    if ((c[0] == '*' && c[1] == '/') || (c[0] == '/' && c[1] == '*'))
      c[0] = '?';
  }
  return copy;
}

char *string_literal(const char *text) {
  Text out = {0};
  text_add(&out, "\"");
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '"' || *c == '\\')
      text_add(&out, "\\%c", *c);
    else if (*c < ' ' || *c >= 127 || *c == '?')
      text_add(&out, "\\%03o", *c);
    else
      text_add(&out, "%c", *c);
  }
  text_add(&out, "\"");
  return out.at;
}

char *double_literal(double x) {
  if (isnan(x))
    return format("NAN");
  if (isinf(x))
    return format(x > 0 ? "INFINITY" : "-INFINITY");
  char *text = format("%.17g", x);
  for (int digits = 6; digits < 17; digits++) {
    char *shorter = format("%.*g", digits, x);
    double back = 0;
    if (sscanf(shorter, "%lf", &back) == 1 && back == x) {
      text = shorter;
      break;
    }
  }
  return strpbrk(text, ".e") ? text : format("%s.0", text);
}

char *float_literal(double x) {
  float single = (float)x;
  if (isnan(single))
    return format("NAN");
  if (isinf(single))
    return format(single > 0 ? "INFINITY" : "-INFINITY");
  char *text = format("%.9g", (double)single);
  for (int digits = 6; digits < 9; digits++) {
    char *shorter = format("%.*g", digits, (double)single);
    float back = 0;
    if (sscanf(shorter, "%f", &back) == 1 && back == single) {
      text = shorter;
      break;
    }
  }
  return format(strpbrk(text, ".e") ? "%sf" : "%s.0f", text);
}

char *dims_text(int rank, const int64_t *dim) {
  Text out = {0};
  text_add(&out, "[");
  for (int i = 0; i < rank; i++)
    text_add(&out, "%s%" PRId64, i ? ", " : "", dim[i]);
  text_add(&out, "]");
  return out.at;
}

void text_list(Text *out, int indent, const char *head, const Names *items, const char *tail) {
  text_add(out, "%s", head);
  const char *line = strrchr(head, '\n');
  size_t column = strlen(line ? line + 1 : head);
  for (int i = 0; i < items->n; i++) {
    bool last = i + 1 == items->n;
    size_t n = strlen(items->at[i]) + (last ? strlen(tail) : 1);
    if (i > 0 && column + 1 + n > WIDTH) {
      text_add(out, "\n%*s", indent, "");
      column = (size_t)indent;
    } else if (i > 0) {
      text_add(out, " ");
      column++;
    }
    text_add(out, "%s%s", items->at[i], last ? "" : ",");
    column += n;
  }
  text_add(out, "%s", tail);
}

void text_comment(Text *out, int indent, const char *paragraph) {
  char *text = comment_text(paragraph);
  size_t column = (size_t)indent + 2;
  text_add(out, "%*s/*", indent, "");
  for (char *word = text; *word;) {
    size_t n = strcspn(word, " ");
    if (column + 1 + n + 3 > WIDTH) {
      text_add(out, "\n%*s *", indent, "");
      column = (size_t)indent + 2;
    }
    text_add(out, " %.*s", (int)n, word);
    column += 1 + n;
    word += n;
    while (*word == ' ')
      word++;
  }
  text_add(out, " */\n");
}
