/* Stands in for the toolkit's header of this name: types of elements. */
#ifndef CUDA_HOST_LIBRARY_TYPES_H
#define CUDA_HOST_LIBRARY_TYPES_H

typedef enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType_t;

#endif
