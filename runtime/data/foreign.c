/* Unsupported file formats by their first bytes; without this list such files would be read as text. Short marks,
 * and marks that may start a text, need a second check. */
#include "data/data.h"

#include <string.h>

static bool starts(const struct pd_array *a, size_t at, const char *mark, size_t n) {
  return at <= a->size && n <= a->size - at && !memcmp(a->map + at, mark, n);
}

static uint64_t number(const struct pd_array *a, size_t at, size_t bytes) {
  uint64_t x = 0;
  if (at + bytes <= a->size) memcpy(&x, a->map + at, bytes);
  return x;
}

static bool ends_as_it_starts(const struct pd_array *a) { /* of four bytes */
  return a->size >= 12 && starts(a, a->size - 4, a->map, 4);
}

static bool ends_with_stop(const struct pd_array *a) { /* a pickle's last operation */
  return a->size > 3 && a->map[1] >= 2 && a->map[1] <= 5 && a->map[a->size - 1] == '.';
}

/* The length of the JSON header comes first. */
static bool is_safetensors(const struct pd_array *a) {
  uint64_t n = number(a, 0, 8);
  return a->size > 10 && n >= 2 && n <= a->size - 8 && a->map[8] == '{' &&
         (a->map[7 + n] == '}' || a->map[7 + n] == ' ');
}

/* torch.save's archive: its first entry is NAME/data.pkl. */
static bool is_torch(const struct pd_array *a) {
  static const char end[] = "/data.pkl";
  uint64_t n = number(a, 26, 2);
  return n >= 9 && starts(a, 30 + n - 9, end, 9);
}

/* The first message's length, in multiples of four bytes; the file may be cut off. */
static bool is_arrow_stream(const struct pd_array *a) {
  const uint64_t n = number(a, 4, 4);
  return n && n % 4 == 0 && n < (uint64_t)1 << 30;
}

static bool has_version(const struct pd_array *a) { return number(a, 4, 4) - 1 < 16; }

#define MARK(text) text, sizeof text - 1
static const char unpack[] = "unpack the file first",
                  write_rows[] = "write the text to a file, or the tokens to .npy",
                  from_parquet[] =
                      "convert it: python3 -c \"import pandas; "
                      "pandas.read_parquet('FILE').to_json('FILE.jsonl', orient='records', lines=True)\"; "
                      "numbers: .to_csv('FILE.csv', index=False)",
                  from_arrow[] =
                      "convert it: python3 -c \"import datasets; "
                      "datasets.Dataset.from_file('FILE').to_json('FILE.jsonl')\"; numbers: .to_csv('FILE.csv')",
                  from_feather[] = "convert it: python3 -c \"import pandas; "
                                   "pandas.read_feather('FILE').to_csv('FILE.csv', index=False)\"",
                  save_arrays[] = "write arrays with numpy.save, or weights as safetensors for --init",
                  load_weights[] = "read weights with --init, as safetensors",
                  images[] = "give a folder that has a folder of images for each class";
static const struct {
  const char *mark;
  size_t length, at;
  const char *name, *help;
  bool (*confirmed)(const struct pd_array *);
} formats[] = {
    {MARK("\x31\x41\x59\x26\x53\x59"), 4, "compressed by bzip2", "unpack the file with bunzip2 first", NULL},
    {MARK("\x04\x22\x4d\x18"), 0, "compressed by lz4", "unpack the file with unlz4 first", NULL},
    {MARK("PK\3\4"), 0, "a PyTorch file", save_arrays, is_torch},
    {MARK("PK\3\4"), 0, "a zip archive", "unzip the file first; archives of arrays need names that end in .npz",
     NULL},
    {MARK("7z\xbc\xaf\x27\x1c"), 0, "a 7z archive", unpack, NULL},
    {MARK("Rar!\x1a\7"), 0, "a RAR archive", unpack, NULL},
    {MARK("ustar"), 257, "a tar archive", unpack, NULL},
    {MARK("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9"), 0, "a PyTorch file", save_arrays, NULL},
    {MARK("\x80"), 0, "a pickle", save_arrays, ends_with_stop},
    {MARK("PAR1"), 0, "a Parquet table", from_parquet, ends_as_it_starts},
    {MARK("ARROW1\0\0"), 0, "an Arrow table", from_feather, NULL},
    {MARK("FEA1"), 0, "a Feather table", from_feather, ends_as_it_starts},
    {MARK("\xff\xff\xff\xff"), 0, "an Arrow stream", from_arrow, is_arrow_stream},
    {MARK("Obj\1"), 0, "an Avro table", write_rows, NULL},
    {MARK("\x89HDF\r\n\x1a\n"), 0, "an HDF5 file", "write the arrays with numpy.save", NULL},
    {MARK("SQLite format 3\0"), 0, "an SQLite database", write_rows, NULL},
    {MARK(""), 0, "a safetensors file", load_weights, is_safetensors},
    {MARK("GGUF"), 0, "a GGUF file", load_weights, has_version},
    {MARK("%PDF-"), 0, "a PDF document", "extract the text first, with pdftotext", NULL},
    {MARK("\x89PNG\r\n\x1a\n"), 0, "a PNG image", images, NULL},
    {MARK("\xff\xd8\xff"), 0, "a JPEG image", images, NULL},
    {MARK("GIF89a"), 0, "a GIF image",
     "convert it to PNG, and give a folder that has a folder of images for each class", NULL},
    {MARK("\x7f"
          "ELF"),
     0, "a program", "give the data instead of the program", NULL},
    {MARK("\xff\xfe"), 0, "a text in UTF-16", "convert the file with iconv -f utf-16 -t utf-8", NULL},
    {MARK("\xfe\xff"), 0, "a text in UTF-16", "convert the file with iconv -f utf-16 -t utf-8", NULL},
};

/* A skippable frame comes first in pzstd's files. */
static const struct {
  const char *mark;
  size_t length;
  enum pd_packing packing;
} packings[] = {{MARK("\x1f\x8b\x08"), PD_GZIP},
                {MARK("\xfd"
                      "7zXZ\0"),
                 PD_XZ},
                {MARK("\x28\xb5\x2f\xfd"), PD_ZSTD},
                {MARK("\x50\x2a\x4d\x18"), PD_ZSTD}};
static const char *const packing_names[] = {[PD_GZIP] = "gzip", [PD_XZ] = "xz", [PD_ZSTD] = "zstd"};
static const char *const unpackers[] = {[PD_GZIP] = "gunzip", [PD_XZ] = "unxz", [PD_ZSTD] = "unzstd"};

enum pd_packing pd_packing_of(const char *file, size_t size) {
  for (size_t i = 0; i < sizeof packings / sizeof *packings; i++)
    if (size >= packings[i].length && !memcmp(file, packings[i].mark, packings[i].length))
      return packings[i].packing;
  return PD_NOT_PACKED;
}

const char *pd_packing_name(enum pd_packing packing) { return packing_names[packing]; }
const char *pd_unpacker(enum pd_packing packing) { return unpackers[packing]; }

bool pd_is_zip(const struct pd_array *a) { return starts(a, 0, MARK("PK\3\4")); }

bool pd_refuse_foreign(const struct pd_array *a, char *why) {
  const enum pd_packing packing = pd_packing_of(a->map, a->size);
  if (packing)
    return pd_refuse(
        why,
        "'%s' is compressed by %s. help: read a text with --tokenizer, or unpack the file first, with "
        "%s",
        a->path, packing_names[packing], unpackers[packing]);
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (starts(a, formats[i].at, formats[i].mark, formats[i].length) &&
        (!formats[i].confirmed || formats[i].confirmed(a)))
      return pd_refuse(why, "'%s' is %s. help: %s", a->path, formats[i].name, formats[i].help);
  return true;
}
