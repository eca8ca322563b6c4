/* pd_convolution: oneDNN's convolution over channels-last images ("nhwc"), whose implementations ("brgconv",
 * "jit:avx512_core" and theirs for 1x1 kernels) take such images directly and choose only the layout of weights,
 * which memory holds as files do and each call rearranges in scratch.
 * - A 1x1 kernel without padding is a matrix product of the pixels, pd_matmul; with a stride, of a copy of the
 *   pixels that the kernel reads.
 * - A 3x3 kernel of stride 1 between floats of many channels runs in kernels/winograd.c.
 * - Bits of a weight gradient depend on how oneDNN deals samples to threads. So it is computed in parts by one
 *   thread each, where the shape alone determines the parts: groups of samples, added in order; or, for weights too
 *   large for copies of their gradient, groups of output channels, after copying their gradient. Grouped
 *   convolutions have few weights: their parts are always samples.
 * - bf16 is used directly where oneDNN supports it; otherwise operands are converted to floats in scratch, and
 *   back.
 * - On processors where bits depend on the number of threads, images are also computed in parts of samples, one
 *   thread each. */
#define PD_KERNELS
#include "kernels/pd_bf16.h"
#include "kernels/pd_vector.h"
#include "kernels/winograd.h"
#include "pd_onednn.h"

#include <omp.h>
#include <string.h>

enum { PARTS = 8, MIN_CHANNELS = 32, MANY_WEIGHTS = 1 << 18, ALIGNMENT = 64 };

struct call {
  dnnl_primitive_t primitive;
  dnnl_memory_t memory[4], scratch;
  int argument[4], n;
  size_t bytes; /* of its scratchpad */
};

struct pd_convolution {
  struct pd_convolution_shape shape;
  int64_t out_height, out_width;
  struct pd_matmul *product;    /* if not NULL, the only implementation ... */
  bool skips;                   /* ... on some of x's pixels, after library_bytes of scratch, ... */
  struct pd_winograd *winograd; /* ... or this one ... */
  bool depthwise;               /* ... or, if set, plain loops for a weight gradient */
  struct call weights;          /* between [O, I, kh, kw] and the layout below */
  struct call part[PARTS];
  int parts;
  bool by_channels;                 /* parts of the weight gradient are output channels, not samples */
  size_t packed_bytes, slice_bytes; /* of one part's weights, of its copied gradient */
  size_t library_bytes, bytes;
  bool widened; /* after `bytes` of scratch: floats of bf16 operands, ... */
  size_t wide_bytes;
};

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static descriptor describe_images(enum pd_type type, int64_t batch, int64_t channels, int64_t height,
                                  int64_t width) {
  return by_tag(4, (int64_t[]){batch, channels, height, width}, type, dnnl_nhwc);
}

static void add_argument(struct call *call, int argument, descriptor_seen d) {
  call->argument[call->n] = argument;
  call->memory[call->n++] = memory(d);
}

static void make(struct call *call, dnnl_primitive_desc_t p) {
  call->primitive = primitive_new(p, "create a primitive");
  descriptor scratch = chosen(p, dnnl_query_scratchpad_md);
  call->bytes = descriptor_bytes(scratch);
  call->scratch = memory(scratch);
  descriptor_free(scratch);
  dnnl_primitive_desc_destroy(p);
}

static void execute(const struct call *call, const void *const *at, void *scratch) {
  dnnl_exec_arg_t arguments[5];
  for (int i = 0; i < call->n; i++) {
    set(call->memory[i], at[i]);
    arguments[i] = (dnnl_exec_arg_t){call->argument[i], call->memory[i]};
  }
  set(call->scratch, scratch);
  arguments[call->n] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, call->scratch};
  check_run(dnnl_primitive_execute(call->primitive, pd_onednn.stream, call->n + 1, arguments),
            "execute a primitive");
}

/* Weights of `channels` output channels, with a leading axis of groups if there are several. */
static descriptor describe_weights(const struct pd_convolution_shape *s, int64_t channels, enum pd_type type,
                                   bool packed) {
  int64_t g = s->groups;
  int64_t whole[] = {channels, s->in_channels, s->kernel[0], s->kernel[1]};
  int64_t grouped[] = {g, channels / g, s->in_channels / g, s->kernel[0], s->kernel[1]};
  dnnl_format_tag_t plain = g > 1 ? dnnl_goihw : dnnl_oihw;
  return by_tag(g > 1 ? 5 : 4, g > 1 ? grouped : whole, type, packed ? dnnl_format_tag_any : plain);
}

/* A convolution of `batch` samples to `channels` output channels. */
static struct convolved describe(const struct pd_convolution *c, int64_t batch, int64_t channels) {
  const struct pd_convolution_shape *s = &c->shape;
  struct convolved d = {.x = describe_images(s->x_type, batch, s->in_channels, s->height, s->width),
                        .w = describe_weights(s, channels, s->w_type, true),
                        .bias = s->bias ? by_tag(1, &channels, s->bias_type, dnnl_a) : NULL,
                        .y = describe_images(s->y_type, batch, channels, c->out_height, c->out_width)};
  for (int i = 0; i < 2; i++) {
    d.stride[i] = s->stride[i];
    d.dilation[i] = s->dilation[i] - 1;
    d.padding[i] = s->padding[i];
  }
  return d;
}

static void forget(struct convolved d) {
  descriptor_free(d.x);
  descriptor_free(d.w);
  descriptor_free(d.bias);
  descriptor_free(d.y);
}

/* Plans a convolution or a gradient; refuses unsupported types. channels: of the description's weights. */
static dnnl_status_t plan(const struct pd_convolution_shape *s, const struct convolved *d, int64_t channels,
                          dnnl_primitive_desc_t *p) {
  dnnl_primitive_desc_t forward = NULL;
  dnnl_primitive_attr_t attributes = attributes_new(false);
  /* A weight gradient in floats is planned with a convolution whose weights have the images' type. */
  struct convolved like_images = *d;
  like_images.w = describe_weights(s, channels, s->x_type, true);
  dnnl_status_t status = plan_convolution(&forward, &like_images, attributes);
  *p = forward;
  if (status == dnnl_success && s->kind != PD_CONVOLUTION) {
    status = s->kind == PD_CONVOLUTION_BACKWARD ? plan_convolution_backward(p, d, forward, attributes)
                                                : plan_convolution_weights(p, d, forward, attributes);
    dnnl_primitive_desc_destroy(forward);
  }
  descriptor_free(like_images.w);
  dnnl_primitive_attr_destroy(attributes);
  return status;
}

/* *packed is the layout of its weights. */
static struct call part_new(const struct pd_convolution *c, int64_t batch, int64_t channels, descriptor *packed) {
  const struct pd_convolution_shape *s = &c->shape;
  struct convolved d = describe(c, batch, channels);
  dnnl_primitive_desc_t p;
  struct call call = {0};
  check(plan(s, &d, channels, &p), "plan a convolution");
  bool gradient = s->kind == PD_CONVOLUTION_WEIGHTS, back = s->kind == PD_CONVOLUTION_BACKWARD;
  *packed = chosen(p, gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
  add_argument(&call, back ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, d.x);
  add_argument(&call, gradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, *packed);
  add_argument(&call, s->kind == PD_CONVOLUTION ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, d.y);
  if (s->bias) add_argument(&call, DNNL_ARG_BIAS, d.bias);
  make(&call, p);
  forget(d);
  return call;
}

/* Between a part's weights in the library's layout and the files'. */
static struct call reorder_new(const struct pd_convolution *c, int64_t channels, descriptor_seen packed) {
  const struct pd_convolution_shape *s = &c->shape;
  descriptor plain = describe_weights(s, channels, s->w_type, false);
  bool gradient = s->kind == PD_CONVOLUTION_WEIGHTS;
  descriptor_seen from = gradient ? packed : plain, to = gradient ? plain : packed;
  dnnl_primitive_attr_t attributes = attributes_new(s->accumulate);
  dnnl_primitive_desc_t p;
  struct call call = {0};
  check(plan_reorder(&p, from, to, attributes), "plan a rearrangement");
  add_argument(&call, DNNL_ARG_FROM, from);
  add_argument(&call, DNNL_ARG_TO, to);
  make(&call, p);
  descriptor_free(plain);
  dnnl_primitive_attr_destroy(attributes);
  return call;
}

/* Parts of some samples, all of one size. */
static void choose_samples(struct pd_convolution *c) {
  c->parts = PARTS;
  while (c->shape.batch % c->parts) c->parts--;
}

/* Parts of a weight gradient, all of one size: samples while their gradients take no more memory than x and dy. */
static void choose_parts(struct pd_convolution *c) {
  const struct pd_convolution_shape *s = &c->shape;
  int64_t weights = s->out_channels * (s->in_channels / s->groups) * s->kernel[0] * s->kernel[1];
  int64_t x = s->batch * s->height * s->width * s->in_channels;
  int64_t dy = s->batch * c->out_height * c->out_width * s->out_channels;
  choose_samples(c);
  c->by_channels = s->groups == 1 && (c->parts * weights > x + dy || c->parts == 1);
  if (!c->by_channels) return;
  c->parts = 1;
  while (2 * c->parts <= PARTS && s->out_channels % (2 * c->parts * MIN_CHANNELS) == 0) c->parts *= 2;
}

static struct pd_matmul *product_new(const struct pd_convolution *c) {
  const struct pd_convolution_shape *s = &c->shape;
  int64_t pixels = c->shape.batch * c->out_height * c->out_width, in = s->in_channels, out = s->out_channels;
  struct pd_matmul_shape m = {.batch = 1, .bias = s->bias, .accumulate = s->accumulate};
  m.bias_type = s->bias_type;
  if (s->kind == PD_CONVOLUTION) {
    m.m = pixels, m.k = in, m.n = out;
    m.a_type = s->x_type, m.b_type = s->w_type, m.c_type = s->y_type;
    m.a_row = in, m.a_column = 1, m.b_row = 1, m.b_column = in;
  } else if (s->kind == PD_CONVOLUTION_BACKWARD) {
    m.m = pixels, m.k = out, m.n = in;
    m.a_type = s->y_type, m.b_type = s->w_type, m.c_type = s->x_type;
    m.a_row = out, m.a_column = 1, m.b_row = in, m.b_column = 1;
  } else {
    m.m = out, m.k = pixels, m.n = in;
    m.a_type = s->y_type, m.b_type = s->x_type, m.c_type = s->w_type;
    m.a_row = 1, m.a_column = out, m.b_row = in, m.b_column = 1;
  }
  m.c_row = m.n;
  return pd_matmul_new(m);
}

static void make_product(struct pd_convolution *c) {
  const struct pd_convolution_shape *s = &c->shape;
  c->product = product_new(c);
  c->library_bytes = aligned(pd_matmul_scratch(c->product));
  c->skips = s->stride[0] > 1 || s->stride[1] > 1;
  int64_t pixels = s->batch * c->out_height * c->out_width;
  c->bytes = c->library_bytes;
  if (c->skips) c->bytes += aligned((size_t)(pixels * s->in_channels * pd_bytes_of(s->x_type)));
}

static bool is_product(const struct pd_convolution_shape *s) {
  if (s->groups > 1) return false;
  for (int i = 0; i < 2; i++)
    if (s->kernel[i] != 1 || s->padding[i] != 0) return false;
  /* Forward with a stride, the library's direct convolution is faster for few weights. */
  bool strided = s->stride[0] > 1 || s->stride[1] > 1;
  return !strided || s->kind != PD_CONVOLUTION || s->in_channels * s->out_channels >= MANY_WEIGHTS;
}

/* oneDNN has gradients of depthwise kernels up to 3x3; larger ones would use its path for groups, at a tenth of
 * the rate. */
static bool is_depthwise_gradient(const struct pd_convolution_shape *s) {
  bool depthwise = s->groups > 1 && s->groups == s->in_channels && s->groups == s->out_channels;
  return s->kind == PD_CONVOLUTION_WEIGHTS && depthwise && (s->kernel[0] > 3 || s->kernel[1] > 3);
}

/* Parts are planned for one thread. */
static void make_parts(struct pd_convolution *c) {
  const struct pd_convolution_shape *s = &c->shape;
  bool gradient = s->kind == PD_CONVOLUTION_WEIGHTS;
  int threads = omp_get_max_threads();
  descriptor packed = NULL;
  c->parts = 1;
  if (gradient)
    choose_parts(c);
  else if (!threads_leave_bits())
    choose_samples(c);
  int64_t samples = c->by_channels ? s->batch : s->batch / c->parts;
  int64_t channels = c->by_channels ? s->out_channels / c->parts : s->out_channels;
  if (gradient || !threads_leave_bits()) omp_set_num_threads(1);
  for (int i = 0; i < c->parts; i++) {
    descriptor_free(packed);
    c->part[i] = part_new(c, samples, channels, &packed);
  }
  omp_set_num_threads(threads);
  c->weights = reorder_new(c, channels, packed);
  c->library_bytes = aligned(c->part[0].bytes > c->weights.bytes ? c->part[0].bytes : c->weights.bytes);
  c->packed_bytes = aligned(descriptor_bytes(packed));
  descriptor_free(packed);
  if (c->by_channels && c->parts > 1)
    c->slice_bytes =
        aligned((size_t)(s->batch * c->out_height * c->out_width * channels * pd_bytes_of(s->y_type)));
  c->bytes = (size_t)c->parts * (c->packed_bytes + c->slice_bytes + c->library_bytes);
}

/* A convolution in the types of its shape. */
static void make_calls(struct pd_convolution *c) {
  if (c->depthwise) return;
  if (pd_winograd_suits(&c->shape)) {
    c->winograd = pd_winograd_new(&c->shape);
    c->bytes = pd_winograd_scratch(c->winograd);
  } else {
    make_parts(c);
  }
}

static int64_t x_elements(const struct pd_convolution *c) {
  return c->shape.batch * c->shape.height * c->shape.width * c->shape.in_channels;
}
static int64_t y_elements(const struct pd_convolution *c) {
  return c->shape.batch * c->out_height * c->out_width * c->shape.out_channels;
}
static int64_t w_elements(const struct pd_convolution *c) {
  const struct pd_convolution_shape *s = &c->shape;
  return s->out_channels * (s->in_channels / s->groups) * s->kernel[0] * s->kernel[1];
}

/* True if the library supports the types of images, weights and result. */
static bool is_done_as_it_is(const struct pd_convolution *c) {
  const struct pd_convolution_shape *s = &c->shape;
  bool gradient = s->kind == PD_CONVOLUTION_WEIGHTS;
  if (s->x_type == PD_F32 && s->w_type == PD_F32 && s->y_type == PD_F32) return s->bias_type == PD_F32;
  if (!has_bf16() || c->depthwise || s->x_type != PD_BF16 || s->y_type != PD_BF16) return false;
  if (s->w_type != (gradient ? PD_F32 : PD_BF16)) return false;
  struct convolved d = describe(c, s->batch, s->out_channels);
  dnnl_primitive_desc_t p;
  dnnl_status_t status = plan(s, &d, s->out_channels, &p);
  forget(d);
  if (status != dnnl_success) return false;
  dnnl_primitive_desc_destroy(p);
  return true;
}

static size_t widened_bytes(enum pd_type type, int64_t n) {
  return type == PD_BF16 ? aligned((size_t)n * sizeof(float)) : 0;
}

/* A convolution in floats, with room for converted operands. */
static void widen_all(struct pd_convolution *c, const struct pd_convolution_shape *s) {
  c->widened = true;
  c->shape.x_type = c->shape.w_type = c->shape.bias_type = c->shape.y_type = PD_F32;
  make_calls(c);
  c->wide_bytes = widened_bytes(s->x_type, x_elements(c)) + widened_bytes(s->w_type, w_elements(c)) +
                  widened_bytes(s->y_type, y_elements(c)) +
                  widened_bytes(s->bias_type, s->bias ? s->out_channels : 0);
}

struct pd_convolution *pd_convolution_new(struct pd_convolution_shape s) {
  struct pd_convolution *c = pd_object_allocate(sizeof *c);
  open_library();
  c->shape = s;
  c->out_height = (s.height + 2 * s.padding[0] - s.dilation[0] * (s.kernel[0] - 1) - 1) / s.stride[0] + 1;
  c->out_width = (s.width + 2 * s.padding[1] - s.dilation[1] * (s.kernel[1] - 1) - 1) / s.stride[1] + 1;
  c->depthwise = is_depthwise_gradient(&s);
  if (is_product(&s)) {
    make_product(c);
  } else if (!is_done_as_it_is(c)) {
    widen_all(c, &s);
  } else {
    make_calls(c);
  }
  pd_check_scratch(pd_convolution_scratch(c));
  return c;
}

size_t pd_convolution_scratch(const struct pd_convolution *c) { return c->bytes + c->wide_bytes; }

/* ---- bf16 that is widened ----------------------------------------------------------------------------- */

/* The next room for a converted operand. */
static float *take_room(char **room, enum pd_type type, int64_t n) {
  float *at = (float *)*room;
  *room += widened_bytes(type, n);
  return at;
}

static pd_in widen(char **room, pd_in x, int64_t n) {
  if (!x.at || x.type == PD_F32) return x;
  float *to = take_room(room, x.type, n);
  pd_read(to, x, 0, n);
  return (pd_in){to, PD_F32};
}

/* Room for a float result that narrow() converts; with accumulation, first filled with the old values. */
static pd_out widen_result(char **room, pd_out x, int64_t n) {
  return x.type == PD_F32 ? x : (pd_out){take_room(room, x.type, n), PD_F32};
}

static void narrow(pd_out to, pd_out from, int64_t n) {
  if (to.type == PD_BF16) pd_write(to, 0, from.at, n);
}

/* ---- kernels of 1x1 that skip pixels ------------------------------------------------------------------ */

/* Copies the pixels that the kernel reads, contiguously. */
static pd_in gather_pixels(const struct pd_convolution *c, pd_in x, char *to) {
  const struct pd_convolution_shape *s = &c->shape;
  int64_t bytes = s->in_channels * pd_bytes_of(x.type), line = s->width * s->in_channels;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < s->batch * c->out_height; i++) {
    int64_t row = i / c->out_height * s->height + i % c->out_height * s->stride[0];
    const char *from = pd_in_from(x, row * line).at;
    for (int64_t j = 0; j < c->out_width; j++)
      memcpy(to + (i * c->out_width + j) * bytes, from + j * s->stride[1] * bytes, (size_t)bytes);
  }
  return (pd_in){to, x.type};
}

/* Copies them back, with zeros for all other pixels. */
static void spread_pixels(const struct pd_convolution *c, const char *from, pd_out dx) {
  const struct pd_convolution_shape *s = &c->shape;
  int64_t bytes = s->in_channels * pd_bytes_of(dx.type), line = s->width * s->in_channels;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < s->batch * s->height; i++) {
    int64_t row = i % s->height / s->stride[0];
    char *to = pd_out_from(dx, i * line).at;
    memset(to, 0, (size_t)(s->width * bytes));
    if (i % s->height % s->stride[0] || row >= c->out_height) continue;
    row += i / s->height * c->out_height;
    for (int64_t j = 0; j < c->out_width; j++)
      memcpy(to + j * s->stride[1] * bytes, from + (row * c->out_width + j) * bytes, (size_t)bytes);
  }
}

static void multiply_pixels(const struct pd_convolution *c, pd_in x, pd_in w, pd_in bias, pd_out y,
                            char *scratch) {
  pd_in seen = c->skips ? gather_pixels(c, x, scratch + c->library_bytes) : x;
  pd_matmul(c->product, seen, w, bias, y, scratch);
}

static void multiply_pixels_backward(const struct pd_convolution *c, pd_in dy, pd_in w, pd_out dx, char *scratch) {
  char *seen = scratch + c->library_bytes;
  pd_matmul(c->product, dy, w, (pd_in){NULL, PD_F32}, c->skips ? (pd_out){seen, dx.type} : dx, scratch);
  if (c->skips) spread_pixels(c, seen, dx);
}

/* ---- images --------------------------------------------------------------------------------------------- */

static void convolve(const struct pd_convolution *c, pd_in x, pd_in w, pd_in bias, pd_in y, char *scratch) {
  char *library = scratch + c->packed_bytes;
  int64_t in = x_elements(c) / c->parts, out = y_elements(c) / c->parts;
  execute(&c->weights, (const void *[]){w.at, scratch}, library);
#pragma omp parallel for schedule(dynamic, 1) if (c->parts > 1)
  for (int i = 0; i < c->parts; i++) {
    const void *at[] = {pd_in_from(x, i * in).at, scratch, pd_in_from(y, i * out).at, bias.at};
    execute(&c->part[i], at, library + (size_t)i * c->library_bytes);
  }
}

void pd_convolution(const struct pd_convolution *c, pd_in x, pd_in w, pd_in bias, pd_out y, void *scratch) {
  char *room = (char *)scratch + c->bytes;
  if (c->product) {
    multiply_pixels(c, x, w, bias, y, scratch);
    return;
  }
  pd_out to = c->widened ? widen_result(&room, y, y_elements(c)) : y;
  if (c->widened) {
    x = widen(&room, x, x_elements(c));
    w = widen(&room, w, w_elements(c));
    bias = widen(&room, bias, c->shape.out_channels);
  }
  if (c->winograd)
    pd_winograd_images(c->winograd, x.at, w.at, bias.at, to.at, scratch);
  else
    convolve(c, x, w, bias, pd_made(to), scratch);
  if (c->widened) narrow(y, to, y_elements(c));
}

void pd_convolution_backward(const struct pd_convolution *c, pd_in dy, pd_in w, pd_out dx, void *scratch) {
  char *room = (char *)scratch + c->bytes;
  pd_in none = {NULL, PD_F32};
  if (c->product) {
    multiply_pixels_backward(c, dy, w, dx, scratch);
    return;
  }
  pd_out to = c->widened ? widen_result(&room, dx, x_elements(c)) : dx;
  if (c->widened) {
    dy = widen(&room, dy, y_elements(c));
    w = widen(&room, w, w_elements(c));
  }
  if (c->winograd)
    pd_winograd_images(c->winograd, dy.at, w.at, NULL, to.at, scratch);
  else
    convolve(c, pd_made(to), w, none, dy, scratch);
  if (c->widened) narrow(dx, to, x_elements(c));
}

/* ---- weight gradients of depthwise convolutions ----------------------------------------------------- */

/* Sums in four vectors, position j of a row in j % 4, so that additions are independent. */
struct depthwise {
  vector lane[4];
};

/* Adds the products of n <= PD_LANES channels, of one row of x and one of dy, at kernel column k. */
static inline void multiply_rows(const struct pd_convolution *c, int64_t k, size_t n, const float *x,
                                 const float *dy, struct depthwise *sum) {
  const struct pd_convolution_shape *s = &c->shape;
  int64_t left = k * s->dilation[1] - s->padding[1], stride = s->stride[1], channels = s->in_channels;
  int64_t first = left < 0 ? (-left + stride - 1) / stride : 0, end = (s->width - left + stride - 1) / stride;
  if (end > c->out_width) end = c->out_width;
  vector lane[4];
  memcpy(lane, sum->lane, sizeof lane);
  for (int64_t j = first; j < end; j += 4)
    for (int64_t l = 0; l < 4 && j + l < end; l++) {
      vector a = {0}, b = {0};
      memcpy(&a, x + ((j + l) * stride + left) * channels, n * sizeof *x);
      memcpy(&b, dy + (j + l) * channels, n * sizeof *dy);
      lane[l] += a * b;
    }
  memcpy(sum->lane, lane, sizeof lane);
}

/* The gradients of n channels' kernels: rows of dy in order, sample by sample. */
static void depthwise_block(const struct pd_convolution *c, int64_t n, const float *x, const float *dy,
                            float *dw) {
  const struct pd_convolution_shape *s = &c->shape;
  int64_t line = s->width * s->in_channels, out_line = c->out_width * s->in_channels;
  int64_t kernel = s->kernel[0] * s->kernel[1];
  for (int64_t k = 0; k < kernel; k++) {
    struct depthwise sum = {{{0}}};
    for (int64_t i = 0; i < s->batch * c->out_height; i++) {
      int64_t row = i % c->out_height * s->stride[0] + k / s->kernel[1] * s->dilation[0] - s->padding[0];
      if (row < 0 || row >= s->height) continue;
      const float *from = x + (i / c->out_height * s->height + row) * line;
      if (n == PD_LANES)
        multiply_rows(c, k % s->kernel[1], PD_LANES, from, dy + i * out_line, &sum);
      else
        multiply_rows(c, k % s->kernel[1], (size_t)n, from, dy + i * out_line, &sum);
    }
    vector all = (sum.lane[0] + sum.lane[2]) + (sum.lane[1] + sum.lane[3]);
    for (int64_t i = 0; i < n; i++) dw[i * kernel + k] = s->accumulate ? dw[i * kernel + k] + all[i] : all[i];
  }
}

static void depthwise_weights(const struct pd_convolution *c, const float *x, const float *dy, float *dw) {
  int64_t channels = c->shape.in_channels, kernel = c->shape.kernel[0] * c->shape.kernel[1];
#pragma omp parallel for
  for (int64_t i = 0; i < channels; i += PD_LANES)
    depthwise_block(c, i + PD_LANES <= channels ? PD_LANES : channels - i, x + i, dy + i, dw + i * kernel);
}

/* ---- weight gradients of others ---------------------------------------------------------------------- */

/* Some of the channels of every pixel of dy. */
static void copy_channels(const struct pd_convolution *c, pd_in dy, int64_t first, int64_t n, char *to) {
  int64_t pixels = c->shape.batch * c->out_height * c->out_width, bytes = n * pd_bytes_of(dy.type);
  for (int64_t i = 0; i < pixels; i++)
    memcpy(to + i * bytes, pd_in_from(dy, i * c->shape.out_channels + first).at, (size_t)bytes);
}

static void add_parts(const struct pd_convolution *c, float *sum) {
  int64_t n = (int64_t)(c->packed_bytes / sizeof *sum);
#pragma omp parallel for
  for (int64_t i = 0; i < n; i++) {
    float x = sum[i];
    for (int p = 1; p < c->parts; p++) x += sum[p * n + i];
    sum[i] = x;
  }
}

static void other_weights(const struct pd_convolution *c, pd_in x, pd_in dy, float *dw, void *scratch) {
  const struct pd_convolution_shape *s = &c->shape;
  char *slices = (char *)scratch + (size_t)c->parts * c->packed_bytes;
  char *library = slices + (size_t)c->parts * c->slice_bytes;
  int64_t channels = s->out_channels / c->parts, pixels = c->out_height * c->out_width;
#pragma omp parallel for schedule(dynamic, 1)
  for (int i = 0; i < c->parts; i++) {
    int64_t sample = c->by_channels ? 0 : i * (s->batch / c->parts);
    const void *slice = pd_in_from(dy, sample * pixels * s->out_channels).at;
    if (c->slice_bytes) {
      slice = slices + (size_t)i * c->slice_bytes;
      copy_channels(c, dy, i * channels, channels, slices + (size_t)i * c->slice_bytes);
    }
    const void *at[] = {pd_in_from(x, sample * s->height * s->width * s->in_channels).at,
                        (char *)scratch + (size_t)i * c->packed_bytes, slice};
    execute(&c->part[i], at, library + (size_t)i * c->library_bytes);
  }
  if (!c->by_channels) {
    add_parts(c, scratch);
    execute(&c->weights, (const void *[]){scratch, dw}, library);
    return;
  }
  for (int i = 0; i < c->parts; i++) {
    float *to = dw + i * channels * s->in_channels * s->kernel[0] * s->kernel[1];
    execute(&c->weights, (const void *[]){(char *)scratch + (size_t)i * c->packed_bytes, to}, library);
  }
}

/* dw holds floats: it is a sum over a batch. */
void pd_convolution_weights(const struct pd_convolution *c, pd_in x, pd_in dy, pd_out dw, void *scratch) {
  char *room = (char *)scratch + c->bytes;
  if (c->product) {
    pd_in seen = c->skips ? gather_pixels(c, x, (char *)scratch + c->library_bytes) : x;
    pd_matmul(c->product, dy, seen, (pd_in){NULL, PD_F32}, dw, scratch);
    return;
  }
  if (c->widened) {
    x = widen(&room, x, x_elements(c));
    dy = widen(&room, dy, y_elements(c));
  }
  if (c->winograd)
    pd_winograd_weights(c->winograd, x.at, dy.at, dw.at, scratch);
  else if (c->depthwise)
    depthwise_weights(c, x.at, dy.at, dw.at);
  else
    other_weights(c, x, dy, dw.at, scratch);
}
