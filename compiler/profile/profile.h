/* Measured costs: what each distinct kernel of a model takes on this machine, kept as text with a
 * signature that proves it applies. */
#ifndef PDC_PROFILE_H
#define PDC_PROFILE_H

#include "fuse/kernel.h"
#include "profile/attentions.h"
#include "device/device.h"
#include "cut/cut.h"

/* A profile holds only for the model that it was made with; its seconds for its machine, and scaled for another. */
typedef struct ProfileSignature {
  Name model;    /* SHA-256 of the nodes, their shapes and attributes, and the pieces */
  Name target;   /* "c f32", "cuda bf16" */
  Name machine;  /* processor or GPU and how many; "": this machine has no GPU, and `arch` is planned for */
  int arch;      /* 90 of sm_90, 0: not asked for; no part of a file */
  int threads;   /* of one rank */
  Name compiler; /* version line of the compiler; "" when not known */
  Name library;  /* oneDNN's version; on GPUs "" */
} ProfileSignature;

typedef struct MeasuredKernel {
  Name signature, name;
  int64_t count;  /* in the model at this microbatch */
  double seconds; /* of one call */
} MeasuredKernel;

typedef struct MeasuredSize {
  int64_t microbatch;
  double *forward, *backward; /* by piece: seconds of a microbatch */
  double *products; /* by piece: the part of backward that makes weights' gradients by products; NULL: not known */
  Vec(MeasuredKernel) kernels;
  AlgorithmList algorithms; /* of the kernels' products, on GPUs */
  AttentionList attentions; /* that cuDNN computes */
} MeasuredSize;

typedef struct Profile {
  Name file;
  ProfileSignature signature;
  double update,
      apart;   /* seconds of an element, 0: not measured. Of the optimizer's rule, and where it writes another
                           version of the weights; */
  double norm; /* of the gradient's squares */
  double read,
      write; /* seconds of a byte that a model which spills reads and writes at its place; 0: not measured */
  double to_device, from_device;  /* likewise, of one that is copied over the link between a GPU and its host */
  double at_home;                 /* likewise, of one that this host reads or writes in an update */
  ProductLibrary cublaslt, cudnn; /* whose algorithms and attentions those are */
  Vec(MeasuredSize) sizes;        /* by rising microbatch */
  const DeviceKind *device;       /* what they were measured on, where it is not what is planned for ... */
  Rates rates;                    /* ... and its rates, from which seconds are scaled */
} Profile;

Name profile_target(const Target *target); /* "cuda bf16" */
ProfileSignature profile_signature(const Graph *g, const Pieces *p, Target target, const char *compiler);
char *profile_write(const Profile *profile, const Pieces *p); /* the file's text */
/* NULL after a diagnostic that names what is wrong or differs. elsewhere: the plan is not for this machine, so that it
 * is enough if the model is the same. */
const Profile *profile_read(const char *path, const Pieces *p, const ProfileSignature *expected, bool elsewhere);
/* The measurements at a microbatch; NULL when there are none. */
const MeasuredSize *profile_at(const Profile *profile, int64_t microbatch);
/* The algorithms of products at a microbatch; NULL when none were measured. */
const Algorithms *profile_algorithms(const Profile *profile, int64_t microbatch);
/* Likewise of attentions; and the workspaces that they take at all microbatches. */
const Attentions *profile_attentions(const Profile *profile, int64_t microbatch);
const Workspaces *profile_workspaces(const Profile *profile);

#endif
