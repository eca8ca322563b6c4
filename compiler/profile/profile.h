/* Measured costs: the time of each distinct kernel of a model on this machine, stored as text with a signature of
 * its validity. */
#ifndef PDC_PROFILE_H
#define PDC_PROFILE_H

#include "fuse/kernel.h"
#include "profile/attentions.h"
#include "device/device.h"
#include "cut/cut.h"

/* A profile is valid for one model. Its times are valid for its machine, and can be scaled to another. */
typedef struct ProfileSignature {
  Name model;    /* SHA-256 of the nodes, their shapes and attributes, and the pieces */
  Name target;   /* "c f32", "cuda bf16" */
  Name machine;  /* processor or GPU and their number; "": this machine has no GPU: plan for `arch` */
  int arch;      /* 90: sm_90; 0: no --arch; not in the file */
  int threads;   /* per rank */
  Name compiler; /* version line of the compiler; "": unknown */
  Name library;  /* oneDNN's version; on GPUs "" */
} ProfileSignature;

typedef struct MeasuredKernel {
  Name signature, name;
  int64_t count;  /* in the model at this microbatch */
  double seconds; /* per call */
} MeasuredKernel;

typedef struct MeasuredSize {
  int64_t microbatch;
  double *forward, *backward; /* by piece: seconds per microbatch */
  double *products;           /* by piece: share of backward for weight gradients by products; NULL: unknown */
  Vec(MeasuredKernel) kernels;
  AlgorithmList algorithms; /* of matrix products, on GPUs */
  AttentionList attentions; /* of attention by cuDNN */
} MeasuredSize;

typedef struct Profile {
  Name file;
  ProfileSignature signature;
  double update, apart; /* optimizer update, seconds per element; apart: into a new version; 0: not measured */
  double norm;          /* squares of the gradient, in seconds per element */
  double read, write;   /* offload: seconds per byte read and written; 0: not measured */
  double to_device, from_device;  /* offload: seconds per byte copied between a GPU and its host */
  double at_home;                 /* offload: seconds per byte that the host reads or writes in an update */
  ProductLibrary cublaslt, cudnn; /* libraries of the algorithms and attentions */
  Vec(MeasuredSize) sizes;        /* by ascending microbatch */
  const DeviceKind *device;       /* the measured device, if it is not the planned one */
  Rates rates;                    /* rates of that device, for scaling */
} Profile;

Name profile_target(const Target *target); /* "cuda bf16" */
ProfileSignature profile_signature(const Graph *g, const Pieces *p, Target target, const char *compiler);
char *profile_write(const Profile *profile, const Pieces *p); /* the file's text */
/* NULL after a diagnostic about the mistake or the difference. elsewhere: the plan is for another machine, so only
 * the model must match. */
const Profile *profile_read(const char *path, const Pieces *p, const ProfileSignature *expected, bool elsewhere);
/* The measurements at a microbatch; NULL: not measured. */
const MeasuredSize *profile_at(const Profile *profile, int64_t microbatch);
/* The algorithms of products at a microbatch; NULL: not measured. */
const Algorithms *profile_algorithms(const Profile *profile, int64_t microbatch);
/* The algorithms of attention at a microbatch; and their workspaces at all microbatches. */
const Attentions *profile_attentions(const Profile *profile, int64_t microbatch);
const Workspaces *profile_workspaces(const Profile *profile);

#endif
