/* Images: decoded, resized and changed as Pillow and torchvision do (images/, by make_images.py), broken and hostile
 * files, folders, and microbatches that threads decode ahead. */
#define _GNU_SOURCE /* memmem */
#include "data/load.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "files.h"
#include "shared/read_file.h"

#define IMAGES(c, h, w) .rank = 3, .dim = {c, h, w}, .elements = (c) * (h) * (w)
#define LABEL(n) .token = true, .target = true, .classes = n, .rank = 1, .dim = {1}, .elements = 1

/* ---- expected values ------------------------------------------------------------------------- */

enum { MOST = 1 << 16 };
static struct pd_image_room room;

static char *read_image_file(const char *name, size_t *size) {
  char path[512], why[PD_WHY];
  snprintf(path, sizeof path, IMAGES_FOLDER "/%s", name);
  char *bytes = pd_read_file(path, size, why);
  if (!bytes) fail_msg("%s", why);
  return bytes;
}

static void decode(const char *name, int channels) {
  char why[PD_WHY];
  size_t size;
  char *bytes = read_image_file(name, &size);
  if (!pd_decode_image(name, bytes, size, channels, MOST, &room.pixels, why)) fail_msg("%s", why);
  free(bytes);
}

/* Decoders of JPEG may round differently by version. */
static int tolerance(const char *name) { return strstr(name, ".jpg") ? 2 : 0; }

static int byte_at(const char *hex, int64_t i) {
  int x = 0;
  assert_int_equal(sscanf(hex + 2 * i, "%2x", (unsigned *)&x), 1);
  return x;
}

static void check_pixels(const char *line, const char *hex) {
  char name[64];
  int channels, width, height;
  assert_int_equal(sscanf(line, "pixels %63s %d %d %d", name, &channels, &width, &height), 4);
  decode(name, channels);
  const struct pd_pixels *p = &room.pixels;
  assert_int_equal(p->width, width);
  assert_int_equal(p->height, height);
  assert_int_equal(p->channels, channels == 1 ? 1 : 4);
  for (int64_t i = 0; i < (int64_t)width * height * channels; i++) {
    const int got = p->at[i / channels * p->channels + i % channels], want = byte_at(hex, i);
    if (abs(got - want) > tolerance(name)) fail_msg("%s: byte %d is %d, not %d", name, (int)i, got, want);
  }
}

static void check_sample(const char *name, const struct pd_input *in, const struct pd_frame *f, const char *hex) {
  char why[PD_WHY];
  float *got = malloc(sizeof *got * (size_t)in->elements);
  assert_true(pd_resize(&room.pixels, f, &room.resize, got, why));
  for (int64_t i = 0; i < in->elements; i++) {
    const int want = byte_at(hex, i);
    if (tolerance(name) ? fabsf(got[i] * 255 - (float)want) > 2.01f : got[i] != (float)want / 255)
      fail_msg("%s: number %d is %g, not %d", name, (int)i, got[i] * 255, want);
  }
  free(got);
}

static void check_central(const char *line, const char *hex) {
  char name[64];
  int channels, height, width, resize;
  assert_int_equal(sscanf(line, "central %63s %d %d %d %d", name, &channels, &height, &width, &resize), 5);
  const struct pd_input in = {.name = "image", IMAGES(channels, height, width)};
  decode(name, channels);
  const struct pd_frame f = pd_central_frame(&in, resize, room.pixels.width, room.pixels.height);
  check_sample(name, &in, &f, hex);
}

static void check_box(const char *line, const char *hex) {
  char name[64];
  int channels, left, top, w, h, height, width;
  assert_int_equal(
      sscanf(line, "box %63s %d %d %d %d %d %d %d", name, &channels, &left, &top, &w, &h, &height, &width), 8);
  const struct pd_input in = {.name = "image", IMAGES(channels, height, width)};
  const struct pd_frame f = {{left, top, w, h}, width, height, {0, 0, width, height}};
  decode(name, channels);
  check_sample(name, &in, &f, hex);
}

static void check_color(const char *line, const char *numbers) {
  enum { PLANE = 30 };
  float x[3 * PLANE], factor;
  int kind, channels, n;
  assert_int_equal(sscanf(line, "color %d %f %d", &kind, &factor, &channels), 3);
  const struct pd_input in = {.name = "image", IMAGES(channels, 6, 5)};
  for (int i = 0; i < channels * PLANE; i++) x[i] = (float)(i * 37 % 101) / 100;
  pd_change_color(&in, (struct pd_color){(enum pd_color_kind)kind, factor}, x);
  for (int i = 0; i < channels * PLANE; i++, numbers += n) {
    float want;
    assert_int_equal(sscanf(numbers, "%f%n", &want, &n), 1);
    if (fabsf(x[i] - want) > 2e-6f)
      fail_msg("change %d by %g: number %d is %g, not %g", kind, factor, i, x[i], want);
  }
}

/* Means over many samples, and the bounds of each box. */
static void check_random(const char *line, const char *numbers) {
  enum { RUNS = 20000 };
  const struct pd_augment a = {.resized_crop = 0.08};
  const struct pd_input in = {.name = "image", IMAGES(3, 8, 8)};
  double area, across, down, sum[3] = {0};
  int w, h, differ = 0;
  assert_int_equal(sscanf(line, "random %d %d", &w, &h), 2);
  assert_int_equal(sscanf(numbers, "%lf %lf %lf", &area, &across, &down), 3);
  for (int64_t s = 0; s < RUNS; s++) {
    const struct pd_box b = pd_random_frame(&a, &in, 5, s, w, h).box;
    const struct pd_box again = pd_random_frame(&a, &in, 5, s, w, h).box;
    const struct pd_box other = pd_random_frame(&a, &in, 6, s, w, h).box;
    assert_memory_equal(&b, &again, sizeof b);
    differ += !!memcmp(&b, &other, sizeof b);
    assert_true(b.left >= 0 && b.top >= 0 && b.width > 0 && b.height > 0);
    assert_true(b.left + b.width <= w && b.top + b.height <= h);
    sum[0] += (double)(b.width * b.height) / w / h;
    sum[1] += (double)b.width / w;
    sum[2] += (double)b.height / h;
  }
  assert_true(differ > RUNS / 2);
  const double got[] = {sum[0] / RUNS, sum[1] / RUNS, sum[2] / RUNS}, want[] = {area, across, down};
  for (int i = 0; i < 3; i++) /* both are means of 20000 with a deviation below 0.3 */
    if (fabs(got[i] - want[i]) > 0.012) fail_msg("%s: mean %d is %g, not %g", line, i, got[i], want[i]);
}

static void values_are_those_of_torchvision(void **state) {
  (void)state;
  static const struct {
    const char *kind;
    void (*check)(const char *line, const char *values);
  } kinds[] = {{"pixels ", check_pixels},
               {"central ", check_central},
               {"box ", check_box},
               {"color ", check_color},
               {"random ", check_random}};
  int seen[5] = {0};
  FILE *in = fopen(IMAGES_FOLDER "/expected.txt", "r");
  assert_non_null(in);
  char *line = NULL;
  size_t n = 0;
  while (getline(&line, &n, in) > 0)
    for (int i = 0; i < 5; i++)
      if (!strncmp(line, kinds[i].kind, strlen(kinds[i].kind))) {
        char *values = strstr(line, " : ");
        assert_non_null(values);
        kinds[i].check(line, values + 3);
        seen[i]++;
      }
  free(line);
  fclose(in);
  for (int i = 0; i < 5; i++) assert_true(seen[i] >= 3);
}

/* ---- hostile files --------------------------------------------------------------------------- */

static void refused(const char *says, const void *bytes, size_t size) {
  char why[PD_WHY] = "";
  assert_false(pd_decode_image("x", bytes, size, 3, MOST, &room.pixels, why));
  if (!strstr(why, says)) fail_msg("expected '%s' in '%s'", says, why);
}

static void cut_files_are_refused(void **state) {
  (void)state;
  static const char *const names[] = {"colour.png", "interlaced.png", "colour.jpg", "progressive.jpg", "cmyk.jpg"};
  for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
    size_t size;
    char *bytes = read_image_file(names[f], &size);
    const bool png = strstr(names[f], ".png");
    for (size_t n = 0; n < size - (png ? 16 : 2); n++) /* without PNG's end, or JPEG's, all pixels are there */
      refused(n < 3 || (png && n < 8) ? "neither a JPEG nor a PNG"
              : png                   ? "damaged PNG"
                                      : "damaged JPEG",
              bytes, n);
    free(bytes);
  }
}

static void sizes_have_limits(void **state) {
  (void)state;
  size_t size;
  char *png = read_image_file("colour.png", &size);
  refused("neither a JPEG nor a PNG", "P6 1 1 255 ...", 14);
  refused("neither a JPEG nor a PNG", "", 0);
  char why[PD_WHY] = "";
  assert_false(pd_decode_image("x", png, size, 3, 76, &room.pixels, why));
  assert_non_null(strstr(why, "'x': the image has 11 x 7 pixels, which is more than 76"));
  memset(png + 16, 0, 4); /* the width */
  refused("damaged PNG", png, size);
  free(png);
  char *jpeg = read_image_file("colour.jpg", &size);
  char *frame = memmem(jpeg, size, "\xff\xc0", 2);
  assert_non_null(frame);
  memcpy(frame + 5, "\xfd\xe8\xfd\xe8", 4);
  refused("65000 x 65000 pixels, which is more than 65536", jpeg, size);
  memcpy(frame + 5, "\0\0\0\0", 4);
  refused("damaged JPEG", jpeg, size);
  free(jpeg);
}

/* Each byte changed in turn: a sample or a reason, and no crash. */
static void damage_is_survived(void **state) {
  (void)state;
  static const char *const names[] = {"palette.png", "grey16.png", "halved.jpg", "progressive.jpg"};
  for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
    size_t size;
    char *bytes = read_image_file(names[f], &size);
    for (size_t n = 0; n < size; n++) {
      char why[PD_WHY] = "";
      const char was = bytes[n];
      bytes[n] = (char)(was ^ (n % 2 ? 0xff : 1 << n % 8));
      assert_true(pd_decode_image("x", bytes, size, n % 3 ? 3 : 1, MOST, &room.pixels, why) || *why);
      bytes[n] = was;
    }
    free(bytes);
  }
}

/* ---- folders --------------------------------------------------------------------------------- */

static const struct pd_input inputs[] = {{.name = "image", IMAGES(3, 6, 6)}, {.name = "label", LABEL(4)}};

/* Copies an image to a path in the folder of this process, with the folders above it. */
static void put(const char *image, const char *path) {
  size_t size;
  char *bytes = read_image_file(image, &size), folder[256];
  for (const char *slash = path; (slash = strchr(slash, '/')); slash++) {
    snprintf(folder, sizeof folder, "%s/%.*s", directory, (int)(slash - path), path);
    mkdir(folder, 0777);
  }
  free(write_bytes(path, bytes, size));
  free(bytes);
}

static char *in_folder(const char *name) {
  char *path = malloc(strlen(directory) + strlen(name) + 2);
  sprintf(path, "%s/%s", directory, name);
  return path;
}

static void refuses(const char *says, const char *name) {
  char why[PD_WHY] = "", *path = in_folder(name);
  assert_null(pd_dataset_open(&path, 1, inputs, 2, reading(0, 0), why));
  if (!strstr(why, says)) fail_msg("expected '%s' in '%s'", says, why);
}

static void classes_are_sorted_folders(void **state) {
  (void)state;
  /* Python's sorted(os.walk()): "10/a" before "10/a-b" before "10/a/b". */
  static const char *const files[] = {"10/a/z.png", "10/a-b/c.PNG", "10/a/b/c.jpeg", "2/x.jpg",
                                      "B/x.jpg",    "B/y.jpg",      "a/x.jpg"};
  for (int i = 6; i >= 0; i--) {
    char path[64];
    snprintf(path, sizeof path, "good/%s", files[i]);
    put("colour.jpg", path);
  }
  put("colour.jpg", "good/.hidden/x.jpg");
  put("colour.jpg", "good/2/.x.jpg");
  put("colour.jpg", "good/2/notes.txt");
  char why[PD_WHY] = "", *path = in_folder("good");
  const struct pd_images *m = pd_list_images(path, why);
  assert_non_null(m);
  assert_int_equal(m->n_classes, 4);
  static const char *const classes[] = {"10", "2", "B", "a"};
  for (int c = 0; c < 4; c++) assert_string_equal(m->classes[c], classes[c]);
  assert_int_equal(m->n, 7);
  static const int labels[] = {0, 0, 0, 1, 2, 2, 3};
  struct pd_dataset *d = pd_dataset_open(&path, 1, inputs, 2, reading(0, 0), why);
  assert_non_null(d);
  assert_int_equal(pd_dataset_samples(d), 7);
  for (int i = 0; i < 7; i++) {
    int32_t label;
    assert_string_equal(m->list + m->at[i], files[i]);
    pd_dataset_read(d, 1, i, &label);
    assert_int_equal(label, labels[i]);
  }
}

static void wrong_folders_are_refused(void **state) {
  (void)state;
  char link[256], target[256];
  put("colour.jpg", "empty/a/x.jpg");
  mkdir(in_folder("empty/b"), 0777);
  refuses("the class 'b' of", "empty");
  put("colour.jpg", "beside/a/x.jpg");
  put("colour.jpg", "beside/x.jpg");
  refuses("and 1 images beside them, such as 'x.jpg'", "beside");
  mkdir(in_folder("nothing"), 0777);
  refuses("has no images. help: give a folder with one folder", "nothing");
  put("colour.jpg", "other/a/x.jpg");
  put("colour.jpg", "other/a/x.webp");
  refuses("other/a/x.webp' is an image, but neither JPEG nor PNG", "other");
  put("colour.jpg", "loop/a/x.jpg");
  snprintf(link, sizeof link, "%s/loop/a/again", directory);
  snprintf(target, sizeof target, "%s/loop", directory);
  assert_int_equal(symlink(target, link), 0);
  refuses("is a symbolic link to a folder above it", "loop");
  put("colour.jpg", "dangling/a/x.jpg");
  snprintf(link, sizeof link, "%s/dangling/a/y.jpg", directory);
  assert_int_equal(symlink("nowhere", link), 0);
  refuses("dangling/a/y.jpg': No such file", "dangling");
  for (char name[] = "many/a/x.jpg"; name[5] <= 'e'; name[5]++) put("colour.jpg", name);
  refuses("has 5 classes, but 'label' has 4", "many");
  put("colour.jpg", "flat/x.jpg");
  refuses("has no folder for each class, which 'label' needs", "flat");
  put("colour.jpg", "control/a\tb/x.jpg");
  refuses("is not UTF-8, or has control characters", "control");
  put("colour.jpg", "c1/a\xc2\x9b/x.jpg");
  refuses("is not UTF-8, or has control characters", "c1");
  put("colour.jpg", "latin/a\xe4/x.jpg");
  refuses("is not UTF-8, or has control characters", "latin");
  put("colour.jpg", "long/\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80/x.jpg");
  char why[PD_WHY];
  assert_non_null(pd_list_images(in_folder("long"), why));
  put("colour.jpg", "locked/a/x.jpg");
  chmod(in_folder("locked/a"), 0);
  if (geteuid()) refuses("cannot read the folder", "locked");
  chmod(in_folder("locked/a"), 0777);
}

static void one_class_is_noted_and_flat_folders_have_images(void **state) {
  (void)state;
  char why[PD_WHY] = "", *single, *flat;
  put("colour.jpg", "single/a/x.jpg");
  put("colour.jpg", "flat/x.jpg");
  single = in_folder("single");
  flat = in_folder("flat");
  assert_non_null(pd_dataset_open(&single, 1, inputs, 2, reading(0, 0), why));
  struct pd_dataset *d = pd_dataset_open(&flat, 1, inputs, 1, reading(0, 0), why);
  assert_non_null(d);
  assert_int_equal(pd_dataset_samples(d), 1);
  assert_int_equal(pd_dataset_images(d, 0)->n_classes, 0);
  static const struct pd_input square = {.name = "image", .rank = 2, .dim = {6, 6}, .elements = 36};
  static const struct pd_input two = {.name = "image", IMAGES(2, 6, 6)};
  assert_null(pd_dataset_open(&flat, 1, &square, 1, reading(0, 0), why));
  assert_non_null(strstr(why, "is a folder, but no input of the model has the shape [3, height, width]"));
  assert_null(pd_dataset_open(&flat, 1, &two, 1, reading(0, 0), why));
  assert_non_null(strstr(why, "'image' does not have the shape [3, height, width] or [1, height, width]"));
}

static void several_folders_have_the_same_classes(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  put("colour.jpg", "first/a/x.jpg");
  put("colour.jpg", "first/b/x.jpg");
  put("colour.jpg", "second/a/y.jpg");
  put("colour.jpg", "second/b/y.jpg");
  put("colour.jpg", "third/a/y.jpg");
  put("colour.jpg", "third/c/y.jpg");
  char *same[] = {in_folder("first"), in_folder("second")}, *other[] = {in_folder("first"), in_folder("third")};
  struct pd_dataset *d = pd_dataset_open(same, 2, inputs, 2, reading(0, 0), why);
  assert_non_null(d);
  assert_int_equal(pd_dataset_samples(d), 4);
  int32_t label;
  pd_dataset_read(d, 1, 3, &label);
  assert_int_equal(label, 1);
  assert_null(pd_dataset_open(other, 2, inputs, 2, reading(0, 0), why));
  assert_non_null(strstr(why, "class 1 is 'b' in"));
  assert_non_null(strstr(why, "help: give folders with the same classes"));
}

/* ---- tar files ------------------------------------------------------------------------------- */

/* A tar file of Python's tarfile, with these members, of the folder of this process. */
static char *pack(const char *name, const char *members, const char *format) {
  char command[1024], *path = in_folder(name);
  snprintf(command, sizeof command,
           "cd %s && python3 -c 'import sys, tarfile; t = tarfile.open(sys.argv[1], \"w\", format=tarfile.%s)\n"
           "for name in sys.argv[2:]: t.add(name)\nt.close()' %s %s",
           directory, format, name, members);
  assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
  return path;
}

static void tar_files_have_keys_and_classes(void **state) {
  (void)state;
  static const char *const formats[] = {"USTAR_FORMAT", "GNU_FORMAT", "PAX_FORMAT"};
  char longer[160], members[600], why[PD_WHY] = "";
  memset(longer, 'k', 120);
  strcpy(longer + 120, "/y.png");
  put("colour.jpg", "x.jpg");
  put("large.png", longer);
  free(write_bytes("x.cls", "\n \t2\r\n", 6));
  free(write_bytes("README.md", "text", 4));
  free(write_bytes("index.json", "{}", 2));
  free(write_bytes("x.json", "{}", 2));
  strcpy(longer + 122, ".cls");
  free(write_bytes(longer, "1", 1));
  longer[120] = 0;
  snprintf(members, sizeof members, "README.md x.cls x.jpg x.json index.json %s/y.cls %s/y.png README.md", longer,
           longer);
  for (int i = 0; i < 3; i++) {
    char *path = pack("good.tar", members, formats[i]);
    struct pd_dataset *d = pd_dataset_open(&path, 1, inputs, 2, reading(0, 0), why);
    if (!d) fail_msg("%s", why);
    assert_int_equal(pd_dataset_samples(d), 2);
    int32_t labels[2];
    float sample[108], same[108];
    const struct pd_view v = {0};
    for (int s = 0; s < 2; s++) pd_dataset_read(d, 1, s, &labels[s]);
    assert_int_equal(labels[0], 2);
    assert_int_equal(labels[1], 1);
    assert_true(pd_dataset_image(d, 0, 0, &v, &room, sample, why));
    decode("colour.jpg", 3);
    const struct pd_frame f = pd_central_frame(&inputs[0], 0, room.pixels.width, room.pixels.height);
    assert_true(pd_resize(&room.pixels, &f, &room.resize, same, why));
    assert_memory_equal(sample, same, sizeof same);
  }
}

static void refuses_tar(const char *says, const char *members) {
  free(pack("bad.tar", members, "USTAR_FORMAT"));
  refuses(says, "bad.tar");
}

static void wrong_tar_files_are_refused(void **state) {
  (void)state;
  put("colour.jpg", "x.jpg");
  put("large.png", "x.png");
  put("large.png", "y.png");
  free(write_bytes("x.cls", "2", 1));
  free(write_bytes("z.cls", "2", 1));
  free(write_bytes("y.cls", "two", 3));
  free(write_bytes("n.cls", "4", 1));
  put("large.png", "n.png");
  refuses_tar("'x.png' is a second image of its key", "x.jpg x.png");
  free(write_bytes("e.png", "", 0));
  refuses_tar("'e.png' is empty", "x.jpg e.png");
  free(write_bytes("README.md", "text", 4));
  refuses_tar("bad.tar' holds no samples", "");
  refuses_tar("bad.tar' holds no samples. help: a sample is KEY.jpg", "README.md");
  free(write_bytes("b.cls", " \n", 2));
  refuses_tar("'b.cls' is not the number of a class", "b.cls x.jpg");
  refuses_tar("the key 'z' has no .jpg, .jpeg or .png file", "z.cls x.jpg x.cls");
  refuses_tar("'y.cls' is not the number of a class", "y.png y.cls");
  refuses_tar("'y.png' has no .cls file, unlike 'x.jpg'", "x.jpg x.cls y.png");
  refuses_tar("has no .cls files, which 'label' needs", "x.jpg y.png");
  refuses_tar("has 5 classes, but 'label' has 4", "n.png n.cls");
  size_t size;
  char why[PD_WHY], *path = pack("bad.tar", "x.jpg x.cls", "USTAR_FORMAT"),
                    *bytes = pd_read_file(path, &size, why);
  size_t jpeg;
  free(read_image_file("colour.jpg", &jpeg));
  const size_t end = 512 + (jpeg + 511) / 512 * 512 + 2 * 512; /* of both members */
  for (size_t n = 512; n <= end; n += 64) {
    free(write_bytes("bad.tar", bytes, n));
    refuses("bad.tar' is not a whole tar file: ", "bad.tar");
  }
  refuses("there is no end mark after offset", "bad.tar");
  bytes[3]++;
  free(write_bytes("bad.tar", bytes, size));
  refuses("bad.tar' is not a whole tar file: there is no valid header at offset 0", "bad.tar");
  free(bytes);
}

/* ---- microbatches ---------------------------------------------------------------------------- */

enum { MICROBATCH = 2, STEPS = 4, SAMPLE = 3 * 6 * 6 };
static struct pd_stage stage;

static void start(char **paths, int threads, bool skip_broken) {
  static const int replicas[] = {1};
  char why[PD_WHY] = "";
  stage = (struct pd_stage){.n_stages = 1,
                            .replicas = replicas,
                            .batch = 2 * MICROBATCH,
                            .microbatch = MICROBATCH,
                            .microbatches = 2,
                            .inputs = inputs,
                            .n_inputs = 2};
  pd = (struct pd_run){.stage = &stage, .ranks = 1, .steps = STEPS, .seed = 3, .training = true};
  pd_options = (struct pd_options){.data = paths,
                                   .n_data = 1,
                                   .validation = paths,
                                   .n_validation = 1,
                                   .data_threads = threads,
                                   .skip_broken = skip_broken,
                                   .augment = {.flip = true, .resized_crop = 0.3, .color = 0.4}};
  pd_training_data = pd_evaluation_data = NULL;
  if (!pd_data_start(why)) fail_msg("%s", why);
}

/* All microbatches of training with two evaluations between them, and one microbatch once more. */
static void load_all(float *to) {
  enum { MICROBATCHES = 2 * STEPS };
  for (int64_t k = 1; k <= MICROBATCHES; k++, to += MICROBATCH * SAMPLE) {
    pd_load(0, k, to);
    if (k % 4) continue;
    for (int64_t v = 1; v <= pd_own_evaluations(); v++) {
      const float *ready = pd_evaluation_ahead(0, v);
      for (int64_t i = 0; i < MICROBATCH; i++) {
        float sample[SAMPLE];
        pd_load_evaluation_sample(0, pd_evaluation_sample(v, i), 0, sample);
        if (ready) assert_memory_equal(sample, ready + i * SAMPLE, sizeof sample);
      }
    }
  }
  pd_load(0, MICROBATCHES - 2, to);
}

static void threads_change_no_bit(void **state) {
  (void)state;
  enum { ALL = (2 * STEPS + 1) * MICROBATCH * SAMPLE };
  static float want[ALL], got[ALL];
  char *path = in_folder("good");
  omp_set_num_threads(1); /* of this thread alone */
  start(&path, 0, false);
  load_all(want);
  assert_memory_equal(want + 5 * MICROBATCH * SAMPLE, want + 8 * MICROBATCH * SAMPLE,
                      sizeof(float) * MICROBATCH * SAMPLE);
  assert_memory_not_equal(want, want + MICROBATCH * SAMPLE, sizeof(float) * MICROBATCH * SAMPLE);
  for (int threads = 1; threads <= 5; threads += 2) {
    memset(got, 0, sizeof got);
    start(&path, threads, false);
    load_all(got);
    pd_ahead_finish();
    assert_memory_equal(got, want, sizeof got);
  }
}

static void broken_images_are_replaced_by_their_class(void **state) {
  (void)state;
  static const char *const files[] = {"skip/a/1.png", "skip/a/2.png", "skip/b/1.png"};
  static float want[SAMPLE], got[SAMPLE];
  char why[PD_WHY], *path = in_folder("skip");
  for (int i = 0; i < 3; i++) put(i % 2 ? "large.png" : "colour.png", files[i]);
  free(write_bytes("skip/a/3.png", "no image", 8));
  start(&path, 0, true);
  const int64_t before = pd_tell_broken();
  pd_load_evaluation_sample(0, 0, 0, want); /* a/1.png, after the last of the class */
  pd_load_evaluation_sample(0, 2, 0, got);
  assert_memory_equal(want, got, sizeof got);
  pd_load_evaluation_sample(0, 2, 0, got);
  assert_int_equal(pd_tell_broken() - before, 1);
  free(write_bytes("skip/b/1.png", "no image", 8));
  assert_false(pd_make_sample(0, true, 2, 1, 0, got, why));
  assert_non_null(strstr(why, "no image of class 1 of '"));
  start(&path, 0, false);
  assert_false(pd_make_sample(0, true, 2, 0, 0, got, why));
  assert_non_null(strstr(why, "skip/a/3.png' is neither a JPEG nor a PNG image"));
}

static void broken_images_are_listed_to_be_skipped(void **state) {
  (void)state;
  static const char *const skipped[] = {"link/a/loop.png", "link/a/none.jpg"};
  char why[PD_WHY] = "", path[2][256], *folder = in_folder("link"), *tar;
  put("colour.jpg", "link/a/x.jpg");
  snprintf(path[0], sizeof path[0], "%s/%s", directory, skipped[0]);
  snprintf(path[1], sizeof path[1], "%s/%s", directory, skipped[1]);
  assert_int_equal(symlink("loop.png", path[0]), 0);
  assert_int_equal(symlink("nowhere", path[1]), 0);
  refuses("Too many levels of symbolic links", "link");
  put("colour.jpg", "x.jpg");
  free(write_bytes("e.png", "", 0));
  free(write_bytes("e.cls", "0", 1));
  free(write_bytes("x.cls", "0", 1));
  tar = pack("empty.tar", "e.png e.cls x.jpg x.cls", "USTAR_FORMAT");
  pd.stage = &stage;
  pd_options.skip_broken = true;
  float got[108], want[108];
  const struct pd_view v = {.skip_broken = true};
  char *const paths[] = {folder, tar};
  for (int i = 0; i < 2; i++) {
    char *one = paths[i];
    const int64_t n = i ? 2 : 3, before = pd_tell_broken();
    struct pd_dataset *d = pd_dataset_open(&one, 1, inputs, 2, reading(0, 0), why);
    if (!d) fail_msg("%s", why);
    assert_int_equal(pd_dataset_samples(d), n);
    assert_true(pd_dataset_image(d, 0, n - 1, &v, &room, want, why));
    assert_true(pd_dataset_image(d, 0, 0, &v, &room, got, why));
    assert_memory_equal(got, want, sizeof got);
    assert_int_equal(pd_tell_broken() - before, n - 1);
  }
  put("colour.jpg", "gone/a/x.jpg");
  snprintf(path[0], sizeof path[0], "%s/gone/b", directory);
  assert_int_equal(symlink("nowhere", path[0]), 0);
  refuses("gone/b': No such file", "gone"); /* the name of a class */
  pd_options.skip_broken = false;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_are_those_of_torchvision),
      cmocka_unit_test(cut_files_are_refused),
      cmocka_unit_test(sizes_have_limits),
      cmocka_unit_test(damage_is_survived),
      cmocka_unit_test(classes_are_sorted_folders),
      cmocka_unit_test(wrong_folders_are_refused),
      cmocka_unit_test(one_class_is_noted_and_flat_folders_have_images),
      cmocka_unit_test(several_folders_have_the_same_classes),
      cmocka_unit_test(tar_files_have_keys_and_classes),
      cmocka_unit_test(wrong_tar_files_are_refused),
      cmocka_unit_test(threads_change_no_bit),
      cmocka_unit_test(broken_images_are_replaced_by_their_class),
      cmocka_unit_test(broken_images_are_listed_to_be_skipped),
  };
  return run_in_folder(tests);
}
