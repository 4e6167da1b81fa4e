/* Operations on the rows of a leaf; included by pyecho.h. */
#ifndef PYECHO_OP_H
#define PYECHO_OP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operations of a leaf's rows on their way into a batch: each use draws its own part of the example, and is transformed
 * while it is copied. In this order: WINDOW, those of geometry (CROP to PAD, in any order), CUTOUT, NORMALIZE, CAST, TO_CHW.
 * At most one resamples, before PAD; WINDOW, PAD and what follows stand once. docs/augmentation.md and
 * csrc/core/ops/program.hpp say what they compute. */
typedef enum pyecho_op_kind {
  PYECHO_OP_WINDOW = 0, /* at one axis; numbers: first anchor, last one (negative: from the end), stride, offsets */
  PYECHO_OP_RANDOM_CROP = 1,  /* a part of `sizes` at a random place */
  PYECHO_OP_CENTER_CROP = 2,  /* the part of `sizes` in the middle */
  PYECHO_OP_RESIZED_CROP = 3, /* a random part, resampled to `sizes`; numbers: area from, to, ratio from, to */
  PYECHO_OP_RESIZE = 4,       /* resampled to `sizes`; one size: of the shorter of both axes */
  PYECHO_OP_FLIP = 5,         /* numbers: probability; one axis */
  PYECHO_OP_PAD = 6,          /* at least `sizes`; numbers: value */
  PYECHO_OP_CUTOUT = 7,       /* numbers: probability, value */
  PYECHO_OP_NORMALIZE = 8,    /* numbers: means, then standard deviations, of each channel or one each */
  PYECHO_OP_CAST = 9,         /* to `element` */
  PYECHO_OP_TO_CHW = 10,      /* the last of three or more axes comes first */
  PYECHO_OP_BITS = 0x7FFFFFFF
} pyecho_op_kind;

typedef enum pyecho_element {
  PYECHO_UINT8 = 0,
  PYECHO_INT8 = 1,
  PYECHO_UINT16 = 2,
  PYECHO_INT16 = 3,
  PYECHO_UINT32 = 4,
  PYECHO_INT32 = 5,
  PYECHO_UINT64 = 6,
  PYECHO_INT64 = 7,
  PYECHO_FLOAT16 = 8,
  PYECHO_BFLOAT16 = 9,
  PYECHO_FLOAT32 = 10,
  PYECHO_FLOAT64 = 11,
  PYECHO_ELEMENT_BITS = 0x7FFFFFFF
} pyecho_element;

/* Never grows. */
typedef struct pyecho_op {
  pyecho_op_kind kind;
  uint32_t draws;       /* selects its random numbers: operations on several leaves with the same number share them */
  const uint32_t* axes; /* of an example */
  size_t axis_count;
  const uint64_t* sizes; /* one for each axis */
  size_t size_count;
  const double* numbers;
  size_t number_count;
  uint32_t nearest;       /* not 0: without interpolation, for labels */
  pyecho_element element; /* of PYECHO_OP_CAST */
} pyecho_op;

#ifdef __cplusplus
}
#endif

#endif /* PYECHO_OP_H */
